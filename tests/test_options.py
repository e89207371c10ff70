"""A call written as text is read, never evaluated."""

import pytest

from idiolect.errors import UserError
from idiolect.option_parsing import parse_call


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("iid", ("iid", {})),
        ("iid()", ("iid", {})),
        (" label_k( k = 2 ) ", ("label_k", {"k": 2})),
        ("f(a=-0.5, b=True, c=None, d='x y')", ("f", {"a": -0.5, "b": True, "c": None, "d": "x y"})),
        ("f(transfer=kd)", ("f", {"transfer": "kd"})),
        ("fashion-mnist-12k", ("fashion-mnist-12k", {})),
        ("tiny-imagenet (size=8)", ("tiny-imagenet", {"size": 8})),
        ("f(layers=(1, 2), names=['a'])", ("f", {"layers": (1, 2), "names": ["a"]})),
    ],
)
def test_call_is_read_as_name_and_options(text, expected):
    assert parse_call(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "f(",
        "a + b",
        "1",
        "'f'",
        "a.b(c=1)",
        "f(x=1)(y=2)",
        "\0",
        "lambda: 1",
        "[f]",
        "(" * 500,
        "f\ng",
        "f-",
        "-f()",
        "f() + g()",
    ],
)
def test_unreadable_text_is_refused_with_an_example(text):
    with pytest.raises(UserError, match="cannot read"):
        parse_call(text)


@pytest.mark.parametrize("text", ["f(2)", "f(*a)", "f(**a)", "f(2, k=1)"])
def test_option_without_a_name_is_refused(text):
    with pytest.raises(UserError, match="option without a name"):
        parse_call(text)


@pytest.mark.parametrize("text", ["f(k=__import__('os').getcwd())", "f(k=2**3)", "f(k=a.b)", "f(k={[]: 1})"])
def test_value_that_needs_evaluation_is_refused_by_option(text):
    with pytest.raises(UserError, match="gives k a value that cannot be read"):
        parse_call(text)


def test_option_given_twice_is_refused_by_name():
    with pytest.raises(UserError, match="gives k twice"):
        parse_call("f(k=1, k=2)")


def test_something_that_is_no_text_is_refused():
    with pytest.raises(UserError, match="not text"):
        parse_call(3)  # type: ignore[arg-type]
