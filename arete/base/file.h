// Files: whole reads with a cap, read-only mappings, and writes that are all or nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arete/base/error.h"

namespace arete::io {

/// An IoError for a failed system call: what was tried on which path, the cause that the system
/// gave, and what the user can do about it.
IoError system_error(std::string_view action, std::string_view path, int error_number);

/// The bytes of the file at `path`. IoError when it cannot be read or holds more than `max_bytes`;
/// the size is checked before memory is taken.
std::vector<std::byte> read_file(const std::string& path, uint64_t max_bytes);

/// Makes the folder `path` and those above it; it is no error if they exist. IoError names the
/// first part that could not be made.
void make_directories(const std::string& path);

/// A read-only mapping of a whole regular file. An empty file gives an empty span.
class MappedFile {
 public:
  /// Maps `path`. IoError when it is missing, unreadable or not a regular file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }

  /// IoError when the file has become shorter than the mapping since it was opened: reading the
  /// lost pages would end the process. Call it before touching bytes after a pause.
  void check_not_truncated() const;

 private:
  void release() noexcept;
  std::string path_;
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  int fd_ = -1;
};

/// A file that appears complete or not at all: bytes go to a temporary file in the same folder,
/// and commit() moves it over the target. The target's permissions are kept; a link is followed.
/// Killed at any moment, what was there before is intact.
class AtomicFile {
 public:
  /// Creates the temporary file. IoError when the folder is missing or cannot be written to.
  explicit AtomicFile(const std::string& path);
  /// Removes the temporary file unless it was committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends bytes. IoError (a full disk, for example) leaves the target untouched.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);

  /// Writes what is buffered, makes it durable and renames it to the target. Once only.
  void commit();

  /// The number of bytes given to write() so far.
  uint64_t size() const { return written_; }
  const std::string& path() const { return path_; }
  const std::string& temporary_path() const { return temporary_path_; }

 private:
  void flush_buffer();
  void write_through(const std::byte* data, size_t size);
  std::string path_, target_, temporary_path_;
  std::vector<std::byte> buffer_;
  uint64_t written_ = 0;
  int fd_ = -1;
  bool committed_ = false;
};

}  // namespace arete::io
