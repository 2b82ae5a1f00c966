"""How long code takes: repeated runs, medians with their spread, tables that compare.

    t = Timer("x.exp()", "import arete; x = arete.randn(1000)")
    print(t.blocked_autorange())
"""
from .utils.common import (  # noqa: F401
    Measurement,
    TaskSpec,
    ordered_unique,
    select_unit,
    set_torch_threads,
    trim_sigfig,
    unit_to_english,
)
from .utils.compare import Compare  # noqa: F401
from .utils.fuzzer import FuzzedParameter, FuzzedTensor, Fuzzer, ParameterAlias  # noqa: F401
from .utils.timer import Language, Timer, timer  # noqa: F401
from .utils.valgrind_wrapper.timer_interface import (  # noqa: F401
    CallgrindStats,
    CopyIfCallgrind,
    FunctionCount,
    FunctionCounts,
)
