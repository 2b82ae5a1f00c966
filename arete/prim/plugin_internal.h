// How libarete finds and opens its plug-ins: the libraries of the CUDA backend and of Gloo.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "arete/prim/communicator.h"

namespace arete::prim {

/// What libarete tells the plug-in: the version it was built as, and an address that is the same in
/// both only if they share one copy of libarete.
struct PluginHost {
  const char* version;
  const void* identity;
};

/// Why a plug-in that was built as `version` does not belong to what opens it; "" if it does.
std::string plugin_mismatch(const PluginHost& host, const char* version, const char* file);

/// The CUDA plug-in's one exported function, extern "C" under kPluginEntry: registers its provider
/// and returns null, or returns a text saying why not.
using PluginEntry = const char* (*)(const PluginHost*);
inline constexpr const char* kPluginEntry = "arete_cuda_plugin";

/// Another one, under kPluginSurvey: calls add(to, name, text) for each line of cuda::survey() that
/// is known without starting CUDA; for none if it is not.
using PluginSurvey = void (*)(const PluginHost*,
                              void (*add)(void* to, const char* name, const char* text), void* to);
inline constexpr const char* kPluginSurvey = "arete_cuda_survey";

/// A third one, under kPluginTimeline: a moment (`what` 0) or the begin of a range (1) called
/// `name` on a profiler's timeline, or the end (2) of `range`, the number that its begin gave.
using PluginTimeline = uint64_t (*)(int what, const char* name, uint64_t range);
inline constexpr const char* kPluginTimeline = "arete_cuda_timeline";

/// The one of Gloo's plug-in, under kGlooEntry: gives what makes communicators and returns null, or
/// returns a text saying why not.
using GlooEntry = const char* (*)(const PluginHost*, MakeCommunicator* found);
inline constexpr const char* kGlooEntry = "arete_gloo_plugin";

/// The address in this copy of libarete.
const void* library_identity() noexcept;

/// DeviceError in a process of which is_forked_from_device_user() is true.
void check_not_forked();

/// Tries to open libarete_cuda.so, once; later calls do nothing.
void load_cuda_plugin() noexcept;
/// The function of a library that has been opened and can be used, else null.
PluginTimeline plugin_timeline() noexcept;
/// The lines of PluginSurvey; none without the library.
std::vector<std::pair<std::string, std::string>> survey_cuda_plugin();

}  // namespace arete::prim
