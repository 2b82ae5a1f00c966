// ZIP archives as .npz files need them: a strict reader (stored and deflate, ZIP64) for archives
// that may be hostile, and a writer of stored entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace arete::io {

class AtomicFile;

struct ZipEntry {
  std::string name;
  uint64_t size = 0;             ///< bytes when unpacked
  uint64_t compressed_size = 0;  ///< bytes in the archive
  uint64_t data_offset = 0;      ///< where they start in the archive
  uint32_t crc = 0;              ///< CRC-32 of the unpacked bytes
  bool deflated = false;
};

/// What an archive may ask for. Sizes are checked before memory is taken.
struct ZipLimits {
  uint64_t max_entries = 1'000'000;
  uint64_t max_total_size = uint64_t{1} << 38;  ///< bytes of all entries when unpacked
};

/// Reads an archive that lies in memory (or is mapped), which must outlive the reader.
class ZipReader {
 public:
  /// Reads the directory and checks every entry: names that are relative, without "..", and
  /// different; no entry overlapping another; sizes that the bytes can have; no encryption.
  /// IoError says which entry is wrong; `file_name` is used in these texts only.
  explicit ZipReader(std::span<const std::byte> file_bytes, std::string_view file_name = "zip data",
                     const ZipLimits& limits = {});

  const std::vector<ZipEntry>& entries() const { return entries_; }
  /// The entry of that name, or nullptr.
  const ZipEntry* find(std::string_view name) const;

  /// The unpacked bytes of an entry of this archive. IoError when they are damaged (CRC).
  std::vector<std::byte> read(const ZipEntry& entry) const;

  /// The bytes of a stored entry without copying them. IoError when they are damaged, or when the
  /// entry is deflated (use read()).
  std::span<const std::byte> view(const ZipEntry& entry) const;

 private:
  std::span<const std::byte> packed(const ZipEntry& entry) const;
  std::span<const std::byte> file_;
  std::string file_name_;
  std::vector<ZipEntry> entries_;
};

/// Writes an archive of stored entries. The same entries always give the same bytes (no dates).
class ZipWriter {
 public:
  /// Appends to `file`, which must be new and outlive the writer; the caller commits it.
  explicit ZipWriter(AtomicFile& file) : file_(file) {}

  /// Adds an entry whose content is the parts one after another. ValueError when the name is
  /// absolute, has "..", or was used before; IoError when the disk is full.
  void add(std::string_view name, std::span<const std::span<const std::byte>> parts);
  void add(std::string_view name, std::span<const std::byte> bytes);

  /// Writes the directory. Once, after the last add().
  void finish();

 private:
  AtomicFile& file_;
  std::vector<ZipEntry> entries_;  // data_offset is that of the local header here
  std::unordered_set<std::string> names_;
  bool finished_ = false;
};

}  // namespace arete::io
