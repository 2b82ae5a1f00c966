// Pooling kernels, compiled once per instruction set (pool.simd.cpp).
#pragma once

#include "arete/prim/args.h"

namespace arete::cpu {

namespace base {
void pool(const prim::PoolArgs& args);
}
namespace avx2 {
void pool(const prim::PoolArgs& args);
}
namespace avx512 {
void pool(const prim::PoolArgs& args);
}

}  // namespace arete::cpu
