// Compiled kernels on disk, so that they are compiled once per machine.
#pragma once

#include <optional>
#include <string>

#include "arete/base/hash.h"

namespace arete::cuda {

/// A folder with one file for each kernel: magic, hash of the payload, payload. Written to a
/// temporary file and renamed; whatever is damaged counts as absent. Never throws: without a
/// folder that can be written there is just no cache.
class KernelStore {
 public:
  /// $ARETE_KERNEL_CACHE (empty: off), else $XDG_CACHE_HOME/arete/kernels, else
  /// ~/.cache/arete/kernels.
  static std::string default_folder();
  explicit KernelStore(std::string folder) : folder_(std::move(folder)) {}
  std::optional<std::string> load(const Hash128& key) const noexcept;
  void save(const Hash128& key, const std::string& payload) const noexcept;
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

}  // namespace arete::cuda
