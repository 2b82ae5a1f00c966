// How libarete finds and opens the library of the CUDA backend.
#pragma once

namespace arete::prim {

/// What libarete tells the plug-in: the version it was built as, and an address that is the same in
/// both only if they share one copy of libarete.
struct PluginHost {
  const char* version;
  const void* identity;
};

/// The plug-in's one exported function, extern "C" under kPluginEntry: registers its provider and
/// returns null, or returns a text saying why not.
using PluginEntry = const char* (*)(const PluginHost*);
inline constexpr const char* kPluginEntry = "arete_cuda_plugin";

/// The address in this copy of libarete.
const void* library_identity() noexcept;

/// Tries to open libarete_cuda.so, once; later calls do nothing.
void load_cuda_plugin() noexcept;

}  // namespace arete::prim
