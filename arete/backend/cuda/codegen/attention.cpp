#include "arete/backend/cuda/codegen/attention.h"

#include <algorithm>

#include "arete/backend/cuda/codegen/emit.h"
#include "arete/base/error.h"

namespace arete::cuda {

static_assert(sizeof(AttentionMatrix) == 4 * 8 &&
              sizeof(AttentionArguments) == 8 * sizeof(AttentionMatrix) + 13 * 8 + 34 * 4);

// The first one that fits: in the order of their times on an H100, heads of 64 and of 128 elements,
// of those that leave registers for everything.
AttentionKernel::Layout AttentionKernel::layout() const {
  struct Choice {
    bool f32, wide;
    Pass pass;
    Layout layout;
  };
  static constexpr Choice kChoices[] = {
      {true, false, Pass::forward, {4, 2, 32, 1}},   {true, false, Pass::queries, {4, 2, 32, 2}},
      {true, false, Pass::queries, {4, 1, 32, 3}},   {true, false, Pass::keys, {4, 2, 32, 2}},
      {true, false, Pass::keys, {4, 1, 32, 3}},      {true, true, Pass::forward, {8, 1, 64, 1}},
      {true, true, Pass::forward, {4, 1, 32, 1}},    {true, true, Pass::queries, {8, 1, 32, 1}},
      {true, true, Pass::queries, {4, 1, 32, 1}},    {true, true, Pass::keys, {8, 1, 32, 1}},
      {true, true, Pass::keys, {4, 1, 32, 1}},       {false, false, Pass::forward, {4, 2, 64, 2}},
      {false, false, Pass::queries, {4, 2, 64, 2}},  {false, false, Pass::keys, {4, 2, 32, 2}},
      {false, true, Pass::forward, {4, 2, 32, 1}},   {false, true, Pass::queries, {4, 2, 32, 1}},
      {false, true, Pass::queries, {4, 1, 32, 2}},   {false, true, Pass::keys, {4, 1, 64, 2}},
      {false, true, Pass::keys, {4, 1, 32, 2}},      {false, false, Pass::gradients, {4, 2, 32, 2}},
      {false, true, Pass::gradients, {8, 1, 64, 1}}, {false, true, Pass::gradients, {4, 1, 32, 2}}};
  // These look at no columns.
  if (pass == Pass::prepare || pass == Pass::finish || pass == Pass::combine) return {4, 1, 16, 4};
  const bool f32 = dtype == kFloat32, wide = std::max(dim, value_dim) > 64;
  Layout last{};
  for (const Choice& c : kChoices) {
    if (c.f32 != f32 || c.wide != wide || c.pass != pass) continue;
    last = c.layout;
    if (shared_bytes(last) <= most_shared) break;
  }
  if (few && pass == Pass::forward) {
    if (last.warps == 8) last = {4, 1, 32, 2};
    if (last.row_tiles == 2) last = {last.warps, 1, last.columns, 2};
  }
  return last;
}

int AttentionKernel::shared_bytes(const Layout& l) const {
  const int rows = l.rows();
  const int size = int(size_of(dtype)), line = dim * size + 16, value_line = value_dim * size + 16;
  const int stage = l.columns * (line + value_line);
  switch (pass) {
    case Pass::forward:
      return rows * line + 2 * stage;
    case Pass::queries:
      return rows * (line + value_line) + 2 * stage;
    case Pass::keys:
    case Pass::gradients:
      break;
    case Pass::combine:
    case Pass::prepare:
    case Pass::finish:
      return 0;
  }
  const int scores = pass == Pass::gradients ? rows * (l.columns * size + 16) : 0;
  return rows * (line + value_line) + 2 * (stage + 2 * l.columns * int(sizeof(float))) + scores;
}

uint64_t AttentionKernel::number() const {
  uint64_t n = uint64_t(dtype);
  const Layout l = layout();
  for (int v : {int(pass), dim / 16, value_dim / 16, int(mask), int(causal), int(dropout),
                int(vector), int(tf32), l.warps, l.row_tiles, l.columns / 16})
    n = 16 * n + uint64_t(v);
  return n;
}

KernelSource attention_source(const AttentionKernel& k) {
  ARETE_ASSERT(k.dtype == kFloat32 || k.dtype == kFloat16 || k.dtype == kBFloat16);
  ARETE_ASSERT(k.dim % 16 == 0 && k.value_dim % 16 == 0 &&
               std::max(k.dim, k.value_dim) <= AttentionKernel::kLargestDim);
  static constexpr const char* kPasses[] = {"forward", "combine",   "prepare", "queries",
                                            "keys",    "gradients", "finish"};
  static constexpr const char* kMasks[] = {"none", "boolean", "additive"};
  static constexpr const char* kDropouts[] = {"none", "fixed", "moved"};
  const auto flag = [](bool v) { return v ? ", true" : ", false"; };
  const AttentionKernel::Layout l = k.layout();
  const std::string pass = kPasses[int(k.pass)], name = "attention_" + pass;
  std::string type = std::string("Attention<AttentionShape<") + storage_name(k.dtype);
  for (int n : {k.dim, k.value_dim, l.warps, l.row_tiles, l.columns})
    type += ", " + std::to_string(n);
  type += std::string(", AttentionMask::") + kMasks[int(k.mask)] + flag(k.causal) +
          ", AttentionDropout::" + kDropouts[int(k.dropout)] + flag(k.vector) +
          flag(k.dtype == kFloat32 && !k.tf32) + ">>";
  const char* header = k.pass <= AttentionKernel::Pass::combine ? "forward" : "backward";
  return {name, std::string("#include \"attention_") + header +
                    ".cuh\"\nextern \"C\" __global__ void __launch_bounds__(" +
                    std::to_string(k.threads()) + ", " + std::to_string(l.blocks) + ") " + name +
                    "(const __grid_constant__ AttentionArgs a) {\n"
                    "  extern __shared__ __align__(16) char shared[];\n  typedef " +
                    type + " Kernel;\n  static_assert(Kernel::k" +
                    std::string(1, char(pass[0] - 'a' + 'A')) + pass.substr(1) +
                    "Shared == " + std::to_string(k.shared_bytes()) +
                    ", \"see shared_bytes()\");\n  Kernel::" + pass + "(a, shared);\n}\n"};
}

std::vector<KernelSource> attention_samples() {
  typedef AttentionKernel K;
  std::vector<KernelSource> sources;
  int i = 0;
  for (K::Pass pass : {K::Pass::forward, K::Pass::queries, K::Pass::keys, K::Pass::gradients})
    for (DType t : {kFloat32, kFloat16, kBFloat16}) {
      if (pass == K::Pass::gradients && t == kFloat32) continue;
      for (K::Mask mask : {K::Mask::none, K::Mask::boolean, K::Mask::additive})
        for (K::Dropout dropout : {K::Dropout::none, K::Dropout::fixed, K::Dropout::moved})
          if (t == kFloat32 || mask == K::Mask::none || dropout == K::Dropout::none)
            sources.push_back(attention_source({.pass = pass,
                                                .dtype = t,
                                                .dim = 64,
                                                .value_dim = 64,
                                                .mask = mask,
                                                .causal = ++i % 2 == 0,
                                                .dropout = dropout,
                                                .vector = true}));
      for (int dim : {16, 48, 128})
        sources.push_back(attention_source({.pass = pass,
                                            .dtype = t,
                                            .dim = dim,
                                            .value_dim = 144 - dim,
                                            .vector = ++i % 2 == 0}));
    }
  for (K::Pass pass : {K::Pass::forward, K::Pass::queries, K::Pass::keys})
    sources.push_back(attention_source({.pass = pass, .dim = 64, .value_dim = 64, .tf32 = true}));
  for (DType t : {kFloat32, kBFloat16})
    for (int dim : {64, 128})
      sources.push_back(attention_source(
          {.dtype = t, .dim = dim, .value_dim = dim, .vector = true, .few = true}));
  for (DType t : {kFloat32, kFloat16, kBFloat16})
    for (int dim : {16, 48, 128})
      for (K::Pass pass : {K::Pass::combine, K::Pass::prepare, K::Pass::finish})
        if (t != kFloat32 || pass != K::Pass::finish)
          sources.push_back(attention_source({.pass = pass,
                                              .dtype = t,
                                              .dim = dim,
                                              .value_dim = 144 - dim,
                                              .mask = dim == 48 ? K::Mask::additive : K::Mask::none,
                                              .vector = dim != 16}));
  return sources;
}

}  // namespace arete::cuda
