"""Switching the recording of history on and off: context managers that are decorators, too."""
from __future__ import annotations

import functools

from . import _C


class _Switch:
    """A context manager that also decorates functions and generator functions."""

    def __call__(self, function):
        import inspect  # loads much, and is not needed to start

        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generator(*args, **kwargs):
                iterator = function(*args, **kwargs)
                go_on, given = iterator.send, None
                while True:  # every step of it runs inside, also those by throw() and close()
                    with self._again():
                        try:
                            value = go_on(given)
                        except StopIteration as stop:
                            return stop.value
                    try:
                        go_on, given = iterator.send, (yield value)
                    except GeneratorExit:
                        with self._again():
                            iterator.close()
                        raise
                    except BaseException as error:
                        go_on, given = iterator.throw, error

            return generator

        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with self._again():
                return function(*args, **kwargs)

        return wrapped

    def _again(self):
        return type(self)()


class _GradSwitch(_Switch):
    _enabled = False

    def __new__(cls, function=None):
        self = super().__new__(cls)
        # @no_grad without parentheses
        return self(function) if callable(function) else self

    def __enter__(self):
        self._previous = _C.is_grad_enabled()
        _C._set_grad_enabled(self._enabled)

    def __exit__(self, *error):
        _C._set_grad_enabled(self._previous)


class no_grad(_GradSwitch):
    """Operators called inside record no history.

    >>> x = arete.ones(2, requires_grad=True)
    >>> with arete.no_grad():
    ...     y = 2 * x
    >>> y.requires_grad
    False
    """


class enable_grad(_GradSwitch):
    """Operators called inside record history, also within no_grad.

    >>> with arete.no_grad(), arete.enable_grad():
    ...     print(arete.is_grad_enabled())
    True
    """

    _enabled = True


class set_grad_enabled(_Switch):
    """Switches at once; as a context manager, restores the previous state at the end.

    >>> with arete.set_grad_enabled(False):
    ...     print(arete.is_grad_enabled())
    False
    """

    def __init__(self, mode: bool):
        self._mode = bool(mode)
        self._previous = _C.is_grad_enabled()
        _C._set_grad_enabled(self._mode)

    def __call__(self, function):
        _C._set_grad_enabled(self._previous)
        return super().__call__(function)

    def _again(self):
        return set_grad_enabled(self._mode)

    def __enter__(self):
        _C._set_grad_enabled(self._mode)

    def __exit__(self, *error):
        _C._set_grad_enabled(self._previous)


class set_multithreading_enabled(_Switch):
    """Whether backward passes may use other threads than the one that starts them. They never do: False is what holds, and
    True, which is PyTorch's default, allows more without asking for it.

    >>> with arete.autograd.set_multithreading_enabled(False):
    ...     arete.ones(2, requires_grad=True).sum().backward()
    """

    def __init__(self, mode: bool):
        self._mode = bool(mode)

    def _again(self):
        return set_multithreading_enabled(self._mode)

    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass


class inference_mode(_Switch):
    """As no_grad; tensors made inside can never take part in differentiation, which makes them cheaper.

    >>> with arete.inference_mode():
    ...     x = arete.ones(2)
    >>> x.is_inference()
    True
    >>> x.requires_grad_()
    Traceback (most recent call last):
    arete.AutogradError: Setting requires_grad=True on inference tensor outside InferenceMode is not allowed...
    """

    def __new__(cls, mode=True):
        self = super().__new__(cls)
        if callable(mode):
            self._mode = True
            return self(mode)
        self._mode = bool(mode)
        return self

    def _again(self):
        return inference_mode(self._mode)

    def __enter__(self):
        self._previous = (_C.is_grad_enabled(), _C.is_inference_mode_enabled())
        _C._set_grad_enabled(False if self._mode else self._previous[0])
        _C._set_inference_mode(self._mode)

    def __exit__(self, *error):
        _C._set_grad_enabled(self._previous[0])
        _C._set_inference_mode(self._previous[1])
