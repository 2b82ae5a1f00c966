// Kernels that work element by element: rare functions, the same for every instruction set.
#pragma once

#include "arete/backend/cpu/kernels/kernel_table.h"

namespace arete::cpu::kernels {

void fill_scalar(KernelTable& table);

}  // namespace arete::cpu::kernels
