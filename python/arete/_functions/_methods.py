"""The functions that become methods of Tensor, too, or stand for methods of another name."""
METHODS: dict[str, object] = {}


def also_method(function):
    METHODS[function.__name__] = function
    return function
