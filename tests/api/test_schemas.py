from noonday.api.schemas import Schema, choice, constrain


def test_constraint_applies_to_the_options_of_its_type() -> None:
    schema: Schema = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    constrain(schema, ("string",), maxLength=5)
    assert schema == {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}]}


def test_constraint_applies_to_a_schema_without_options() -> None:
    schema: Schema = {"type": "integer"}
    constrain(schema, ("number", "integer"), minimum=1)
    assert schema == {"type": "integer", "minimum": 1}


def test_choice_keeps_title_and_description_and_refers_to_components() -> None:
    whole = {"title": "Pet", "description": "An animal.", "properties": {}}
    assert choice(whole, ["Cat", "Dog"], "#/{name}") == {
        "title": "Pet",
        "description": "An animal.",
        "oneOf": [{"$ref": "#/Cat"}, {"$ref": "#/Dog"}],
    }
