import pytest

from tvm_quant.errors import ConfigError
from tvm_quant.lists import count, listed, matching


@pytest.mark.parametrize("text", ["", "2,", "2,x", "0,1", "-1", "1.5"])
def test_what_is_no_list_of_numbers_is_refused_with_an_example(text):
    with pytest.raises(ConfigError) as error:
        listed("--bits", text, count)
    assert str(error.value) == f"--bits is '{text}'; expected numbers joined by commas, as 2,4,8"


def test_values_are_kept_once_in_the_order_given():
    assert listed("--shares", "0.5, 0.25,0.5", float, "shares") == [0.5, 0.25]


def test_names_come_in_the_order_of_the_table():
    assert matching(["d*", "a"], ["a", "b", "dense"]) == ["a", "dense"]


def test_each_pattern_has_to_match():
    with pytest.raises(ConfigError, match=r"no tool matches 'x\*'; there are a, b"):
        matching(["a", "x*"], ["a", "b"], "tool")
