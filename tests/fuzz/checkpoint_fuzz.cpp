// An index of any content beside a file of pieces must either be refused or describe tensors that
// can be read.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "arete/base/error.h"
#include "arete/io/checkpoint.h"
#include "arete/io/dtype_code.h"
#include "arete/ops/creation.h"

namespace {

struct Folder {
  std::string path;
  Folder() {
    const char* temporary = std::getenv("TMPDIR");
    path = std::string(temporary ? temporary : "/tmp") + "/arete-fuzz-" +
           std::to_string(::getpid()) + ".checkpoint";
    std::filesystem::create_directories(path);
    arete::io::write_pieces(
        path + "/pieces.safetensors",
        {{"a", arete::ones({2, 3}, arete::kFloat32)}, {"b", arete::ones({1, 3}, arete::kFloat32)}});
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder made;
  const std::string& folder = made.path;
  std::ofstream(folder + "/" + arete::io::kCheckpointIndex, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), std::streamsize(size));
  try {
    const arete::io::Checkpoint checkpoint(folder);
    for (const auto& [name, t] : checkpoint.tensors()) {
      uint64_t bytes = arete::io::dtype_code_size(t.dtype);
      for (const int64_t n : t.shape) bytes *= uint64_t(n);
      if (bytes <= (1 << 20)) try {
          checkpoint.read(name);
        } catch (const arete::Error&) {
        }
    }
    checkpoint.verify();
  } catch (const arete::Error&) {
  }
  return 0;
}
