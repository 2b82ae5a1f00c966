// Compiling kernels to see that they compile, not to run them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/backend/cuda/runtime/nvrtc.h"
#include "arete/base/error.h"

namespace arete::cuda {

// The option, if the compiler knows it: NVRTC before 12.9 knows none of these.
inline std::vector<std::string> if_known(const char* option) {
  try {
    compile_to_cubin({"empty", "extern \"C\" __global__ void empty() {}"}, 90, {option});
    return {option};
  } catch (const Error&) {
    return {};
  }
}
// Optimizing takes half of the time and finds no fault; the tests that need a GPU compile as users
// do.
inline const std::vector<std::string>& hasty_options() {
  static const std::vector<std::string> options = if_known("--Ofast-compile=max");
  return options;
}

// The lines in which a source includes files, and names what these ask for.
inline std::string head_of(const std::string& text) {
  size_t end = 0;
  while (end < text.size() && text[end] == '#') end = text.find('\n', end) + 1;
  return text.substr(0, end);
}

// Reading what they include is most of what sources of kernels take. Those with the same head are
// compiled as one, each in a namespace of its own, where kernels have no names of C, nor any that
// hide those of templates they call.
inline KernelSource together(std::span<const KernelSource> sources) {
  const std::string head = head_of(sources[0].text), linkage = "extern \"C\" ";
  KernelSource all{"together", head};
  for (size_t k = 0; k < sources.size(); ++k) {
    std::string body = sources[k].text.substr(head.size());
    if (const size_t at = body.find(linkage); at != std::string::npos)
      body.erase(at, linkage.size());
    if (const size_t at = body.find(sources[k].name + "(", body.find("__global__"));
        at != std::string::npos)
      body.replace(at, sources[k].name.size(), "kernel");
    all.text += "namespace n" + std::to_string(k) + " {\n" + body + "\n}\n";
  }
  return all;
}

// Sources compile, each to so many bytes at least. If there is a fault, each is compiled alone,
// which says in which one.
inline void expect_to_compile(const std::vector<KernelSource>& sources, int arch,
                              const std::vector<std::string>& options, size_t smallest) {
  constexpr size_t kMost = 32;
  std::map<std::string, std::vector<std::vector<KernelSource>>> same;
  for (const KernelSource& s : sources) {
    std::vector<std::vector<KernelSource>>& parts = same[head_of(s.text)];
    if (parts.empty() || parts.back().size() == kMost) parts.emplace_back();
    parts.back().push_back(s);
  }
  const auto compiles = [&](const KernelSource& s, size_t least) {
    return compile_to_cubin(s, arch, options).size() >= least;
  };
  for (const auto& [head, parts] : same) {
    for (const std::vector<KernelSource>& part : parts) {
      try {
        if (compiles(together(part), smallest * part.size())) continue;
      } catch (const Error&) {
      }
      bool any = false;
      for (const KernelSource& s : part) {
        try {
          if (compiles(s, smallest)) continue;
          ADD_FAILURE() << s.name << " compiles to less than " << smallest << " bytes";
        } catch (const Error& e) {
          ADD_FAILURE() << e.what();
        }
        any = true;
      }
      EXPECT_TRUE(any) << "sources that compile alone do not compile together:\n"
                       << together(part).text;
    }
  }
}

}  // namespace arete::cuda
