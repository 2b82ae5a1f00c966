#include "arete/backend/cuda/runtime/kernel_store.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace arete::cuda {
namespace {

constexpr char kMagic[8] = {'A', 'R', 'E', 'T', 'E', 'K', 'N', '1'};

struct Header {
  char magic[8];
  Hash128 hash;  // of the payload
};

}  // namespace

std::string KernelStore::default_folder() {
  if (const char* own = std::getenv("ARETE_KERNEL_CACHE")) return own;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    return std::string(cache) + "/arete/kernels";
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::string(home) + "/.cache/arete/kernels";
  return "";
}

std::optional<std::string> KernelStore::load(const Hash128& key) const noexcept try {
  if (folder_.empty()) return std::nullopt;
  std::ifstream in(folder_ + "/" + key.hex(), std::ios::binary);
  Header header;
  if (!in.read(reinterpret_cast<char*>(&header), sizeof header)) return std::nullopt;
  std::string payload((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.hash != hash_bytes(payload))
    return std::nullopt;
  return payload;
} catch (...) {
  return std::nullopt;
}

void KernelStore::save(const Hash128& key, const std::string& payload) const noexcept try {
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  std::string temporary = folder_ + "/" + key.hex() + ".XXXXXX";
  const int file = mkstemp(temporary.data());
  if (file < 0) return;
  Header header;
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.hash = hash_bytes(payload);
  std::FILE* out = fdopen(file, "wb");
  bool good = out != nullptr;
  if (out) {
    good = std::fwrite(&header, sizeof header, 1, out) == 1 &&
           std::fwrite(payload.data(), 1, payload.size(), out) == payload.size();
    good = std::fclose(out) == 0 && good;
  } else {
    close(file);
  }
  if (!good || std::rename(temporary.c_str(), (folder_ + "/" + key.hex()).c_str()) != 0)
    std::remove(temporary.c_str());
} catch (...) {
}

}  // namespace arete::cuda
