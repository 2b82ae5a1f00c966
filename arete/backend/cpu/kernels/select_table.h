// What is compiled once per instruction set, as kernels::table() chose it.
#pragma once

#include <cstring>

#include "arete/backend/cpu/kernels/kernel_table.h"

/// ARETE_SELECT(arete::cpu, pool): a pointer to arete::cpu::base::pool, avx2:: or avx512::.
#if defined(__x86_64__)
#define ARETE_SELECT(scope, name) \
  ::arete::cpu::kernels::select(&scope::base::name, &scope::avx2::name, &scope::avx512::name)
#else
#define ARETE_SELECT(scope, name) (&scope::base::name)
#endif
/// ARETE_SELECT_TABLE(random_table): a reference to that of arete::cpu::kernels.
#define ARETE_SELECT_TABLE(table_name) (*ARETE_SELECT(::arete::cpu::kernels, table_name))

namespace arete::cpu::kernels {

template <class T>
T* select(T* base, T* avx2, T* avx512) {
  const char* name = table().name;
  if (std::strcmp(name, "avx512") == 0) return avx512;
  return std::strcmp(name, "avx2") == 0 ? avx2 : base;
}

}  // namespace arete::cpu::kernels
