// Tests of what needs a GPU, or needs that there is none.
#pragma once

#include <gtest/gtest.h>

#include "arete/device/cuda.h"

#define NEEDS_GPU() \
  if (!::arete::cuda::is_available()) GTEST_SKIP() << ::arete::cuda::unavailable_reason()
#define NEEDS_NO_GPU() \
  if (::arete::cuda::is_available()) GTEST_SKIP() << "there is a GPU"
