// A library in the place of libarete_cuda.so ($ARETE_CUDA_PLUGIN): two GPUs that are none, for the
// tests of the Python package.
#include "arete/prim/plugin_internal.h"
#include "tests/support/fake_gpus.h"

extern "C" __attribute__((visibility("default"))) const char* arete_cuda_plugin(
    const arete::prim::PluginHost*) {
  arete::prim::register_provider(arete::DeviceType::cuda, &arete::test::fake_gpus(2));
  arete::prim::register_nccl(arete::test::fake_nccl());
  return nullptr;
}
