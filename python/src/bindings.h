// The parts of the extension.
#pragma once

#include <nanobind/nanobind.h>

namespace arete::python {

void bind_amp(nanobind::module_& m);
void bind_autograd(nanobind::module_& m);
void bind_benchmark(nanobind::module_& m);
void bind_compile(nanobind::module_& m);
void bind_distributed(nanobind::module_& m);
void bind_expressions(nanobind::module_& m);
void bind_extension(nanobind::module_& m);
void bind_foreach(nanobind::module_& m);
void bind_cpp_layers(nanobind::module_& m);
void bind_kernels(nanobind::module_& m);
void bind_layers(nanobind::module_& m);
void bind_loader(nanobind::module_& m);
void bind_memory(nanobind::module_& m);
void bind_metrics(nanobind::module_& m);
void bind_optim(nanobind::module_& m);
void bind_program(nanobind::module_& m);
void bind_rnn(nanobind::module_& m);
void bind_sparse(nanobind::module_& m);
void bind_skip(nanobind::module_& m);
void bind_saved_tensor_hooks(nanobind::module_& m);
void bind_records(nanobind::module_& m);
void bind_datasets(nanobind::module_& m);
void bind_cuda(nanobind::module_& m);
void bind_profiler(nanobind::module_& m);

}  // namespace arete::python
