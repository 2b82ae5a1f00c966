// What extensions for PyTorch include.
#pragma once

#include "torch/library.h"
#include "torch/python.h"
#include "torch/types.h"
