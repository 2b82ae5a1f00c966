"""How threads wait for each other, which OpenMP's runtime reads when it is loaded, with _C: the first module to be imported."""
import os as _os

# By itself GNU's runtime lets a thread without work spin for milliseconds, which takes processors from threads that have some, once
# there are more of these than processors. 1000 rounds are 25 to 60 us, about as long as calls that follow each other are apart.
_SPIN = "GOMP_SPINCOUNT"
_is_said = bool({_SPIN, "OMP_WAIT_POLICY"} & _os.environ.keys())
if not _is_said:
    _os.environ[_SPIN] = "1000"
try:
    from . import _C  # noqa: F401
finally:
    if not _is_said:
        del _os.environ[_SPIN]  # programs that are started from here have their own say
