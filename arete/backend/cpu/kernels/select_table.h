// The table of one family for the instruction set that kernels::table() chose.
#pragma once

#include <cstring>

#include "arete/backend/cpu/kernels/kernel_table.h"

/// ARETE_SELECT_TABLE(random_table): a reference to base::random_table, avx2:: or avx512::.
#if defined(__x86_64__)
#define ARETE_SELECT_TABLE(table_name)                                          \
  ::arete::cpu::kernels::select_table(&::arete::cpu::kernels::base::table_name, \
                                      &::arete::cpu::kernels::avx2::table_name, \
                                      &::arete::cpu::kernels::avx512::table_name)
#else
#define ARETE_SELECT_TABLE(table_name) (::arete::cpu::kernels::base::table_name)
#endif

namespace arete::cpu::kernels {

template <class Table>
const Table& select_table(const Table* base, const Table* avx2, const Table* avx512) {
  const char* name = table().name;
  if (std::strcmp(name, "avx512") == 0) return *avx512;
  return std::strcmp(name, "avx2") == 0 ? *avx2 : *base;
}

}  // namespace arete::cpu::kernels
