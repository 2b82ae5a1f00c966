#include "arete/backend/cuda/codegen/pool.h"

#include <algorithm>

#include "arete/backend/cuda/codegen/emit.h"
#include "arete/base/error.h"

namespace arete::cuda {

static_assert(sizeof(PoolArguments) == (9 + 6 + 15 + 12 + 1 + 6 + 4) * 8 + 24 * 4);

int pool_vector(DType dtype) { return int(std::min<size_t>(16 / size_of(dtype), 8)); }

KernelSource pool_source(const PoolKernel& k) {
  ARETE_ASSERT(k.dtype != kBool && !is_complex(k.dtype) && (k.max || is_floating(k.dtype)));
  ARETE_ASSERT(!k.vector || (k.channels_last && k.placement < 2));
  ARETE_ASSERT(k.placement != 1 || k.window == 0);
  ARETE_ASSERT(k.team == 1 || (!k.backward && k.window == 0));
  ARETE_ASSERT(k.run == 1 || (k.backward && !k.channels_last));
  ARETE_ASSERT(k.aligned || k.run > 1);
  const std::string function =
      std::string(k.max ? "max_pool_" : "avg_pool_") + (k.backward ? "backward" : "forward");
  const int vector = k.vector ? pool_vector(k.dtype) : 1;
  std::string arguments = std::string(storage_name(k.dtype)) + (k.wide ? ", i64, " : ", i32, ") +
                          std::to_string(vector) + (k.channels_last ? ", true" : ", false");
  KernelSource source;
  source.name = function + "_" + storage_name(k.dtype);
  if (k.channels_last) source.name += "_last" + std::to_string(vector);
  if (k.wide) source.name += "_wide";
  const char* const placements[] = {"", "_adaptive", "_random"};
  arguments += ", " + std::to_string(k.placement);
  source.name += placements[k.placement];
  if (!k.backward) {
    const std::string size = std::to_string(k.window), team = std::to_string(k.team);
    arguments += ", " + size + ", " + size + ", " + team;
    if (k.window > 0) source.name += "_" + size + "x" + size;
    if (k.team > 1) source.name += "_team" + team;
  } else {
    const std::string run = std::to_string(k.run);
    arguments += ", " + run + (k.aligned ? ", true" : ", false");
    if (k.run > 1) source.name += "_run" + run;
    if (!k.aligned) source.name += "_ragged";
  }
  source.text = "#include \"pool.cuh\"\nextern \"C\" __global__ void __launch_bounds__(" +
                std::to_string(kPoolThreads) + ") " + source.name +
                "(const __grid_constant__ PoolArguments p) {\n  " + function + "<" + arguments +
                ">(p);\n}\n";
  return source;
}

std::vector<KernelSource> pool_samples() {
  std::vector<KernelSource> sources;
  const auto add = [&](PoolKernel k) { sources.push_back(pool_source(k)); };
  for (int t = 0; t < kNumDTypes; ++t) {
    const DType dtype = DType(t);
    if (dtype == kBool || is_complex(dtype)) continue;
    for (bool max : {true, false}) {
      if (!max && !is_floating(dtype)) continue;
      for (bool backward : {false, true}) {
        add({dtype, max, backward});
        add({dtype, max, backward, true, true});
        if (backward)
          for (const bool aligned : {true, false})
            add({dtype, max, backward, false, false, false, 0, 0, 1, size_of(dtype) < 8 ? 4 : 2,
                 aligned});
        else
          add({dtype, max, backward, false, false, false, 0, 0, kPoolWarp});
      }
    }
  }
  // The other variants do not depend on the type.
  for (bool max : {true, false})
    for (bool backward : {false, true}) {
      for (int placement : {1, 2}) {
        if (placement == 2 && !max) continue;
        add({kBFloat16, max, backward, true, placement == 1, false, 0, placement});
        add({kFloat32, max, backward, false, false, false, 0, placement});
        add({kFloat64, max, backward, false, false, true, 0, placement});
        if (backward) {
          add({kFloat32, max, backward, false, false, false, 0, placement, 1, 4});
          add({kFloat64, max, backward, false, false, false, 0, placement, 1, 2, false});
          continue;
        }
        if (placement == 2) add({kFloat32, max, backward, false, false, false, 2, placement});
        for (int team : {kPoolFew, kPoolWarp, kPoolThreads}) {
          add({kFloat32, max, backward, false, false, false, 0, placement, team});
          add({kFloat64, max, backward, false, false, true, 0, placement, team});
        }
        add({kFloat32, max, backward, true, placement == 1, false, 0, placement, kPoolFew});
        add({kFloat16, max, backward, true, placement == 1, false, 0, placement, kPoolWarp});
        add({kFloat64, max, backward, true, placement == 1, false, 0, placement, kPoolWarp});
      }
      add({kFloat16, max, backward, true, false});
      add({kFloat32, max, backward, false, false, true});
      add({kFloat64, max, backward, true, false, true});
      for (int window : {2, 3}) {
        if (backward) continue;
        add({kBFloat16, max, backward, true, true, false, window});
        add({kFloat32, max, backward, true, true, false, window});
        add({kFloat32, max, backward, false, false, false, window});
        add({kFloat64, max, backward, true, false, false, window});
      }
    }
  return sources;
}

}  // namespace arete::cuda
