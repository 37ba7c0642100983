"""For every test: logs are silent unless a test listens, and no example has to be quick."""

import logging

import structlog
from hypothesis import settings

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
settings.register_profile("noonday", deadline=None)
settings.load_profile("noonday")
