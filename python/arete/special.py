"""Special functions under the names of torch.special."""
from ._families import install

__all__ = install("special", globals(), {
    "gammaln": "lgamma", "psi": "digamma", "digamma": "digamma", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv",
    "exp2": "exp2", "expm1": "expm1", "expit": "sigmoid", "logit": "logit", "log1p": "log1p", "sinc": "sinc",
    "round": "round", "softmax": "softmax", "log_softmax": "log_softmax", "logsumexp": "logsumexp", "xlogy": "xlogy",
    "i0": "i0", "polygamma": "polygamma", "multigammaln": "mvlgamma", "gammainc": "igamma", "gammaincc": "igammac",
})  # fmt: skip
