#include "arete/io/event_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>

#include "arete/base/error.h"
#include "arete/base/file.h"
#include "arete/io/checked.h"
#include "arete/io/crc32c.h"
#include "arete/io/protobuf_writer.h"

namespace arete::io {
namespace {

constexpr double kFlushSeconds = 2;
constexpr size_t kFlushBytes = 1 << 16;

// Field numbers of tensorflow.Event, SessionLog, Summary and Summary.Value.
enum : uint32_t {
  kEventWallTime = 1,
  kEventStep = 2,
  kEventFileVersion = 3,
  kEventSummary = 5,
  kEventSessionLog = 7,
  kSessionStatus = 1,
  kSummaryValue = 1,
  kValueTag = 1,
  kValueSimple = 2,
};
constexpr int64_t kSessionStart = 1;

template <class Clock>
double seconds_of() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}
double wall_time() { return seconds_of<std::chrono::system_clock>(); }
double steady_seconds() { return seconds_of<std::chrono::steady_clock>(); }

std::string host_name() {
  char buffer[256] = {};
  if (::gethostname(buffer, sizeof(buffer) - 1) != 0 || !*buffer) return "localhost";
  std::string name = buffer;
  for (char& c : name) {
    if (c == '/' || static_cast<unsigned char>(c) <= 0x20) c = '_';
  }
  return name;
}

// TFRecord: length, masked CRC of the length, data, masked CRC of the data.
void append_record(std::string& out, std::string_view data) {
  auto bytes = [](const char* p, size_t n) { return std::as_bytes(std::span(p, n)); };
  char frame[12];
  store_le<uint64_t>(data.size(), frame);
  store_le<uint32_t>(masked_crc32c(bytes(frame, 8)), frame + 8);
  out.append(frame, 12);
  out += data;
  store_le<uint32_t>(masked_crc32c(bytes(data.data(), data.size())), frame);
  out.append(frame, 4);
}

}  // namespace

EventWriter::EventWriter(const std::string& folder, std::optional<int64_t> resume_step)
    : last_flush_(steady_seconds()) {
  make_directories(folder);
  const double now = wall_time();
  std::string second = std::to_string(static_cast<int64_t>(now));
  // TensorBoard reads the files of a folder in the order of their names.
  if (second.size() < 10) second.insert(0, 10 - second.size(), '0');
  const std::string base = folder + "/events.out.tfevents." + second + "." + host_name() + "." +
                           std::to_string(::getpid());
  static std::atomic<int> counter{0};
  for (;;) {
    const int serial = counter.fetch_add(1);
    path_ = serial == 0 ? base : base + "." + std::to_string(serial);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (fd_ >= 0) break;
    if (errno != EEXIST && errno != EINTR) throw system_error("create", path_, errno);
  }
  try {
    add_event(ProtobufWriter()
                  .real64(kEventWallTime, now)
                  .bytes(kEventFileVersion, "brain.Event:2")
                  .message());
    if (resume_step) {
      const auto session = ProtobufWriter().integer(kSessionStatus, kSessionStart);
      add_event(ProtobufWriter()
                    .real64(kEventWallTime, now)
                    .integer(kEventStep, *resume_step)
                    .bytes(kEventSessionLog, session.message())
                    .message());
    }
    flush();
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

EventWriter::~EventWriter() {
  try {
    flush();
  } catch (...) {
    // A destructor has nobody to tell.
  }
  ::close(fd_);
}

void EventWriter::add_event(std::string_view message) { append_record(buffer_, message); }

void EventWriter::scalar(std::string_view tag, double value, int64_t step) {
  const auto point =
      ProtobufWriter().bytes(kValueTag, tag).real32(kValueSimple, static_cast<float>(value));
  const auto summary = ProtobufWriter().bytes(kSummaryValue, point.message());
  add_event(ProtobufWriter()
                .real64(kEventWallTime, wall_time())
                .integer(kEventStep, step)
                .bytes(kEventSummary, summary.message())
                .message());
  if (buffer_.size() >= kFlushBytes || steady_seconds() - last_flush_ >= kFlushSeconds) flush();
}

void EventWriter::flush() {
  size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t put = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const int cause = errno;
      buffer_.erase(0, done);  // a later flush goes on where this one stopped
      throw system_error("write", path_, cause);
    }
    done += static_cast<size_t>(put);
  }
  buffer_.clear();
  last_flush_ = steady_seconds();
}

}  // namespace arete::io
