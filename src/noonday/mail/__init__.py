"""Email: address checks, message format, and an SMTP channel.

Every attempt sends the same message with the same Message-ID, so mail clients can drop duplicates. A permanent refusal by the
mail server is not retried; every other failure is.
"""
