// Drives a fuzz target where libFuzzer is not available (no clang++, or a sanitizer build of GCC):
// runs it on every file of the given folders, then on random mutations of them until the time is
// over, or as many are done as it was told. It takes libFuzzer's options of the same meaning and
// ignores the rest. A failing input is left in a file before the target sees it, so that a crash of
// any kind can be repeated with PROGRAM FILE.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;
using Clock = std::chrono::steady_clock;

struct Options {
  double seconds = 30;
  std::size_t runs = 0;  // if any are told, the time is none
  std::size_t max_length = 65536;
  std::string artifact_prefix = "./";
  std::uint64_t seed = std::random_device{}();
  std::vector<fs::path> inputs;
};

bool take(std::string_view argument, std::string_view name, std::string& value) {
  if (!argument.starts_with(name)) return false;
  value = argument.substr(name.size());
  return true;
}

Options parse(int argc, char** argv) {
  Options options;
  std::string value;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (take(argument, "-max_total_time=", value)) {
      options.seconds = std::stod(value);
    } else if (take(argument, "-runs=", value)) {
      options.runs = std::stoull(value);
    } else if (take(argument, "-max_len=", value)) {
      options.max_length = std::stoull(value);
    } else if (take(argument, "-artifact_prefix=", value)) {
      options.artifact_prefix = value;
    } else if (take(argument, "-seed=", value)) {
      options.seed = std::stoull(value);
    } else if (!argument.starts_with("-")) {
      options.inputs.emplace_back(argument);
    }
  }
  return options;
}

Bytes read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(in), {});
}

class Mutator {
 public:
  Mutator(const std::vector<Bytes>& corpus, std::size_t max_length, std::uint64_t seed)
      : corpus_(corpus), max_length_(max_length), random_(seed) {}

  Bytes next() {
    Bytes bytes = corpus_[below(corpus_.size())];
    for (std::size_t n = 1 + below(8); n > 0; --n) mutate(bytes);
    if (bytes.size() > max_length_) bytes.resize(max_length_);
    return bytes;
  }

 private:
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  std::uint8_t byte() { return static_cast<std::uint8_t>(random_()); }

  void mutate(Bytes& bytes) {
    // Positions are drawn again for each change; half of them near the front, where headers are.
    const std::size_t reach =
        below(2) == 0 ? std::min<std::size_t>(bytes.size(), 64) : bytes.size();
    const std::size_t at = below(reach);
    switch (below(8)) {
      case 0:
        if (!bytes.empty()) bytes[at] ^= static_cast<std::uint8_t>(1U << below(8));
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = byte();
        break;
      case 2:
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), 1 + below(8), byte());
        break;
      case 3:
        if (!bytes.empty()) {
          const std::size_t count = 1 + below(bytes.size() - at);
          const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(at);
          bytes.erase(first, first + static_cast<std::ptrdiff_t>(count));
        }
        break;
      case 4:
        bytes.resize(at);
        break;
      case 5: {
        // The numbers at which arithmetic on sizes goes wrong.
        static constexpr std::uint64_t kEdges[] = {0,
                                                   1,
                                                   0x7f,
                                                   0x80,
                                                   0xff,
                                                   0x7fff,
                                                   0xffff,
                                                   0x7fffffff,
                                                   0x80000000,
                                                   0xffffffff,
                                                   0x7fffffffffffffff,
                                                   0x8000000000000000,
                                                   0xffffffffffffffff};
        const std::uint64_t edge = kEdges[below(std::size(kEdges))];
        const std::size_t width = std::size_t{1} << below(4);
        for (std::size_t i = 0; i < width && at + i < bytes.size(); ++i) {
          bytes[at + i] = static_cast<std::uint8_t>(edge >> (8 * i));
        }
        break;
      }
      case 6: {
        const Bytes& other = corpus_[below(corpus_.size())];
        const std::size_t from = below(other.size());
        const std::size_t count = other.empty() ? 0 : 1 + below(other.size() - from);
        const auto first = other.begin() + static_cast<std::ptrdiff_t>(from);
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), first,
                     first + static_cast<std::ptrdiff_t>(count));
        break;
      }
      default:
        if (!bytes.empty()) {
          // A digit for a digit keeps text formats valid while their numbers change.
          for (std::size_t i = at; i < bytes.size() && i < at + 32; ++i) {
            if (bytes[i] >= '0' && bytes[i] <= '9') {
              bytes[i] = static_cast<std::uint8_t>('0' + below(10));
              break;
            }
          }
        }
    }
  }

  const std::vector<Bytes>& corpus_;
  std::size_t max_length_;
  std::mt19937_64 random_;
};

void run(const Bytes& bytes, const fs::path& last_input) {
  {
    std::ofstream out(last_input, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  }
  // A copy of exactly the size, so that a sanitizer sees reads past the end.
  const Bytes exact(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  std::vector<Bytes> corpus;
  bool only_files = !options.inputs.empty();
  for (const fs::path& input : options.inputs) {
    if (fs::is_directory(input)) {
      only_files = false;
      for (const auto& entry : fs::directory_iterator(input)) {
        if (entry.is_regular_file()) corpus.push_back(read_file(entry.path()));
      }
    } else {
      corpus.push_back(read_file(input));
    }
  }
  const fs::path last_input = options.artifact_prefix + "last-input";
  for (const Bytes& bytes : corpus) run(bytes, last_input);
  std::size_t runs = corpus.size();
  if (!only_files) {
    corpus.emplace_back();
    corpus.emplace_back(64, std::uint8_t{0});
    Mutator mutator(corpus, options.max_length, options.seed);
    const auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
    while (options.runs > 0 ? runs < options.runs : Clock::now() < end) {
      run(mutator.next(), last_input);
      ++runs;
    }
  }
  std::printf("%zu inputs, seed %llu: no failure\n", runs,
              static_cast<unsigned long long>(options.seed));
  std::error_code ignored;
  fs::remove(last_input, ignored);
  return 0;
}
