#include "arete/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "arete/base/text.h"

namespace arete::io {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
// Linux transfers at most 0x7ffff000 bytes in one call; a smaller piece is as fast.
constexpr size_t kLargestTransfer = 1 << 30;

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_;
};

int open_retrying(const char* path, int flags, mode_t mode = 0) {
  int fd;
  do {
    fd = ::open(path, flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

void check_path(const std::string& path) {
  ARETE_CHECK(!path.empty(), IoError("", "the path of a file is empty").hint("name a file"));
  ARETE_CHECK(path.find('\0') == std::string::npos,
              IoError("", "the path " + quote_text(path) + " holds a zero byte"));
}

std::string parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string hint_for(int error_number, std::string_view path) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return "free some space on that disk or choose a folder on another one; files that were "
             "complete before are untouched";
    case EFBIG:
      return "raise the limit of file sizes (ulimit -f) or use another file system";
    case EACCES:
    case EPERM:
      return "check who owns " + quote_text(parent_of(std::string(path))) +
             " and its permissions (ls -ld), or choose another folder";
    case EROFS:
      return "the file system is mounted read-only: choose another folder";
    case ENOENT:
      return "check the spelling; the folder must exist first";
    case ENOTDIR:
      return "a part of the path is a file, not a folder: choose another path";
    case EISDIR:
      return "the path is a folder: name a file";
    case ENAMETOOLONG:
      return "use a shorter name";
    case ELOOP:
      return "the path goes through a circle of links";
    case EMFILE:
    case ENFILE:
      return "too many files are open: close some or raise the limit (ulimit -n)";
    case EIO:
      return "the disk reports a fault: check it (dmesg) and use another one";
    case ENOMEM:
      return "the machine is out of memory";
    default:
      return "";
  }
}

}  // namespace

IoError system_error(std::string_view action, std::string_view path, int error_number) {
  IoError error("", "cannot " + std::string(action) + " " + quote_text(path, 500) + ": " +
                        std::generic_category().message(error_number));
  const std::string hint = hint_for(error_number, path);
  if (!hint.empty()) error.hint(hint);
  return error;
}

std::vector<std::byte> read_file(const std::string& path, uint64_t max_bytes) {
  check_path(path);
  const FileDescriptor file(open_retrying(path.c_str(), O_RDONLY));
  if (file.get() < 0) throw system_error("open", path, errno);
  struct stat info;
  if (::fstat(file.get(), &info) != 0) throw system_error("examine", path, errno);
  if (S_ISDIR(info.st_mode)) throw system_error("read", path, EISDIR);
  const auto declared = static_cast<uint64_t>(info.st_size);
  auto too_large = [&](const std::string& got) {
    return IoError("", "the file " + quote_text(path, 500) + " is too large")
        .expected("at most " + std::to_string(max_bytes) + " bytes")
        .got(got);
  };
  if (S_ISREG(info.st_mode) && declared > max_bytes)
    throw too_large(std::to_string(declared) + " bytes");

  // A pipe or a file of /proc says 0: then the vector grows as bytes come.
  std::vector<std::byte> bytes(S_ISREG(info.st_mode) && declared > 0 ? static_cast<size_t>(declared)
                                                                     : 4096);
  size_t used = 0;
  for (;;) {
    if (used == bytes.size()) {
      std::byte probe;
      const ssize_t got = ::read(file.get(), &probe, 1);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw system_error("read", path, errno);
      if (got == 0) break;
      if (used >= max_bytes) throw too_large("more");
      bytes.resize(std::max<size_t>(used * 2, 4096));
      bytes[used++] = probe;
      continue;
    }
    const size_t piece = std::min(bytes.size() - used, kLargestTransfer);
    const ssize_t got = ::read(file.get(), bytes.data() + used, piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_error("read", path, errno);
    if (got == 0) break;
    used += static_cast<size_t>(got);
    if (used > max_bytes) throw too_large("more");
  }
  bytes.resize(used);
  return bytes;
}

void make_directories(const std::string& path) {
  check_path(path);
  size_t end = 0;
  while (end < path.size()) {
    end = path.find('/', end + 1);
    if (end == std::string::npos) end = path.size();
    const std::string part = path.substr(0, end);
    if (part.empty() || part == "/") continue;
    if (::mkdir(part.c_str(), 0777) == 0) continue;
    const int cause = errno;
    struct stat info;
    if (::stat(part.c_str(), &info) == 0) {
      if (S_ISDIR(info.st_mode)) continue;
      throw IoError("", "cannot make the folder " + quote_text(path, 500) + ": " +
                            quote_text(part, 500) + " exists and is not a folder")
          .hint("choose another path or move that file away");
    }
    throw system_error("make the folder", part, cause);
  }
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  check_path(path);
  FileDescriptor file(open_retrying(path.c_str(), O_RDONLY | O_NONBLOCK));
  if (file.get() < 0) throw system_error("open", path, errno);
  struct stat info;
  if (::fstat(file.get(), &info) != 0) throw system_error("examine", path, errno);
  if (S_ISDIR(info.st_mode)) throw system_error("read", path, EISDIR);
  ARETE_CHECK(S_ISREG(info.st_mode), IoError("", "cannot map " + quote_text(path, 500) +
                                                     ": it is a device or a pipe, not a file"));
  size_ = static_cast<uint64_t>(info.st_size);
  if (size_ > 0) {
    void* address =
        ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (address == MAP_FAILED) throw system_error("map", path, errno);
    data_ = static_cast<const std::byte*>(address);
  }
  fd_ = file.release();
}

MappedFile::~MappedFile() { release(); }

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  release();
  path_ = std::move(other.path_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

void MappedFile::release() noexcept {
  if (data_) ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
  if (fd_ >= 0) ::close(fd_);
  data_ = nullptr;
  size_ = 0;
  fd_ = -1;
}

void MappedFile::check_not_truncated() const {
  if (fd_ < 0) return;
  struct stat info;
  if (::fstat(fd_, &info) != 0) throw system_error("examine", path_, errno);
  ARETE_CHECK(
      static_cast<uint64_t>(info.st_size) >= size_,
      IoError("", "the file " + quote_text(path_, 500) + " became shorter while it was read")
          .expected(std::to_string(size_) + " bytes")
          .got(std::to_string(info.st_size) + " bytes")
          .hint("another program is writing it: wait for it and load again"));
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), target_(path) {
  check_path(path);
  ARETE_CHECK(path.back() != '/', system_error("write", path, EISDIR));
  struct stat info;
  mode_t mode = 0;
  bool keep_mode = false;
  if (::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) {
    // rename() would replace the link itself; people who link checkpoints elsewhere mean the file.
    char* resolved = ::realpath(path.c_str(), nullptr);
    if (!resolved) throw system_error("follow the link", path, errno);
    target_ = resolved;
    std::free(resolved);
  }
  if (::stat(target_.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) throw system_error("write", path, EISDIR);
    ARETE_CHECK(S_ISREG(info.st_mode), IoError("", "cannot replace " + quote_text(path, 500) +
                                                       ": it is a device or a pipe, not a file"));
    mode = info.st_mode & 07777;
    keep_mode = true;
  } else if (errno != ENOENT) {
    throw system_error("write", path, errno);
  }

  const std::string folder = parent_of(target_);
  if (::stat(folder.c_str(), &info) != 0) {
    const int cause = errno;
    throw IoError("", "cannot write " + quote_text(path, 500) + ": the folder " +
                          quote_text(folder, 500) + " cannot be reached (" +
                          std::generic_category().message(cause) + ")")
        .hint(cause == ENOENT ? "create it first (mkdir -p) or choose another path"
                              : hint_for(cause, folder));
  }
  const auto slash = target_.rfind('/');
  const std::string base = slash == std::string::npos ? target_ : target_.substr(slash + 1);
  // The temporary name is longer than the real one, so a real name that is too long is seen here.
  ARETE_CHECK(base.size() <= NAME_MAX, system_error("write", path, ENAMETOOLONG));
  static std::atomic<uint64_t> counter{0};
  for (int attempt = 0;; ++attempt) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    temporary_path_ = (slash == std::string::npos ? "" : target_.substr(0, slash + 1)) + "." +
                      base.substr(0, 120) + "." + std::to_string(::getpid()) + "." +
                      std::to_string(counter.fetch_add(1)) + "." + std::to_string(now) + ".tmp";
    fd_ = open_retrying(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
    if (fd_ >= 0) break;
    if (errno == EEXIST && attempt < 100) continue;
    const int cause = errno;
    temporary_path_.clear();
    throw system_error("create a temporary file beside", path, cause);
  }
  // Only the bits that chmod may set without being the owner matter; a failure here (a file system
  // without permissions) is no reason to lose the data.
  if (keep_mode && ::fchmod(fd_, mode) != 0) errno = 0;
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!committed_ && !temporary_path_.empty()) ::unlink(temporary_path_.c_str());
}

void AtomicFile::write_through(const std::byte* data, size_t size) {
  while (size > 0) {
    const ssize_t put = ::write(fd_, data, std::min(size, kLargestTransfer));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw system_error("write", path_, errno);
    data += put;
    size -= static_cast<size_t>(put);
  }
}

void AtomicFile::flush_buffer() {
  write_through(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  ARETE_ASSERT(!committed_ && fd_ >= 0);
  written_ += bytes.size();
  if (bytes.size() >= kBufferBytes) {
    flush_buffer();
    write_through(bytes.data(), bytes.size());
    return;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  if (buffer_.size() >= kBufferBytes) flush_buffer();
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void AtomicFile::commit() {
  ARETE_ASSERT(!committed_ && fd_ >= 0);
  flush_buffer();
  if (::fsync(fd_) != 0) throw system_error("make durable", path_, errno);
  const int fd = std::exchange(fd_, -1);
  // Network file systems report some failed writes only here.
  if (::close(fd) != 0 && errno != EINTR) throw system_error("write", path_, errno);
  if (::rename(temporary_path_.c_str(), target_.c_str()) != 0)
    throw system_error("move the finished file to", path_, errno);
  committed_ = true;
  // The new name itself is durable only once the folder is; file systems that cannot sync a folder
  // say EINVAL, and the data is in place either way.
  const std::string folder = parent_of(target_);
  const FileDescriptor directory(open_retrying(folder.c_str(), O_RDONLY | O_DIRECTORY));
  if (directory.get() >= 0 && ::fsync(directory.get()) != 0 && errno != EINVAL && errno != EROFS)
    throw system_error("make durable the folder of", path_, errno);
}

}  // namespace arete::io
