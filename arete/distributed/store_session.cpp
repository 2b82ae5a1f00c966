#include <cstring>

#include "arete/base/error.h"
#include "arete/distributed/store_server_internal.h"

namespace arete::distributed {

constexpr uint64_t kQueueBytes = 64;    // of an entry, beside key and value
constexpr uint64_t kAwaitedBytes = 96;  // the same

void append_number(std::string& to, uint64_t number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void append_text(std::string& to, std::string_view text) {
  append_number(to, text.size());
  to.append(text);
}

// ---- StoreState

void StoreState::await(const std::string& key, StoreSession* session) {
  waiting_.emplace(key, session);
  ++session->missing_;
  session->awaited_ += key.size() + kAwaitedBytes;
}

void StoreState::forget(StoreSession* session) {
  if (session->missing_ == 0) return;
  std::erase_if(waiting_, [&](const auto& entry) { return entry.second == session; });
  session->missing_ = 0;
  session->awaited_ = 0;
}

void StoreState::announce(const std::string& key) {
  const auto [begin, end] = waiting_.equal_range(key);
  for (auto at = begin; at != end; ++at) at->second->key_is_there();
  waiting_.erase(begin, end);
}

// ---- StoreSession

// Takes the arguments of one request from what has come. After the first that is not there in whole
// all others are empty.
class StoreSession::Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T number() {
    T value{};
    if (take(sizeof(T))) std::memcpy(&value, bytes_.data() + at_ - sizeof(T), sizeof(T));
    return value;
  }
  std::string_view text() {
    const auto length = number<uint64_t>();
    if (length > kMostText) wrong_ = true;
    return !wrong_ && take(length) ? bytes_.substr(at_ - length, length) : std::string_view();
  }
  std::string key() { return std::string(text()); }
  /// How many of a list follow.
  uint64_t count() {
    const auto n = number<uint64_t>();
    if (n > kMostTexts) wrong_ = true;
    return wrong_ || incomplete_ ? 0 : n;
  }
  std::vector<std::string> keys() {
    std::vector<std::string> keys;
    for (uint64_t n = count(); n > 0 && is_whole(); --n) keys.push_back(key());
    return keys;
  }
  bool is_wrong() const { return wrong_; }
  bool is_whole() const { return !wrong_ && !incomplete_; }
  size_t position() const { return at_; }

 private:
  bool take(uint64_t n) {
    if (incomplete_ || bytes_.size() - at_ < n) {
      incomplete_ = true;
      return false;
    }
    at_ += n;
    return true;
  }
  std::string_view bytes_;
  size_t at_ = 0;
  bool incomplete_ = false, wrong_ = false;
};

bool StoreSession::receive(std::string_view bytes) {
  in_.append(bytes);
  size_t done = 0;
  while (done < in_.size()) {
    const std::string_view rest = std::string_view(in_).substr(done);
    Outcome outcome = follow(rest);
    if (outcome == Outcome::incomplete) break;
    Reader reader(rest);
    if (outcome == Outcome::done) outcome = answer(reader);
    if (outcome != Outcome::done) return false;
    // Many short requests may have long answers.
    if (out.size() - sent_ > kMostRequest) return false;
    done += reader.position();
    progress_ = {};
  }
  in_.erase(0, done);
  return in_.size() <= kMostRequest && count();
}

void StoreSession::sent(size_t bytes) {
  sent_ += bytes;
  // Not at each time: what is left would be moved again and again.
  if (sent_ * 2 >= out.size()) {
    out.erase(0, sent_);
    sent_ = 0;
  }
  count();
}

// Tells the state how much is held here; false if that is too much for all together.
bool StoreSession::count() {
  for (std::string* s : {&in_, &out})
    if (s->capacity() > (size_t(256) << 10) && s->size() < s->capacity() / 4) s->shrink_to_fit();
  const uint64_t now = in_.capacity() + out.capacity() + awaited_;
  const bool fits = now <= counted_ || state_.under_way - counted_ + now <= kMostUnderWay;
  state_.under_way += now - counted_;
  counted_ = now;
  return fits;
}

// Note [Requests that come slowly]
// Whether a request is there in whole is found out without reading it again for each of its pieces:
// somebody who sends a long list byte by byte would keep the server busy. answer() reads it once.
StoreSession::Outcome StoreSession::follow(std::string_view bytes) {
  Progress& p = progress_;
  if (p.at == 0) {
    const auto query = Query(bytes[0]);
    if (validated_ == (query == Query::validate)) return Outcome::wrong;
    // One who waits has nothing to ask.
    if (missing_ > 0 && query != Query::cancel_wait) return Outcome::wrong;
    p.at = 1;
    switch (query) {
      case Query::validate:
      case Query::ping:
        p.rest = sizeof(uint32_t);
        break;
      case Query::set:
      case Query::append:
      case Query::queue_push:
        p.texts = 2;
        break;
      case Query::compare_set:
        p.texts = 3;
        break;
      case Query::get:
      case Query::delete_key:
      case Query::queue_pop:
      case Query::queue_length:
        p.texts = 1;
        break;
      case Query::add:
        p.texts = 1;
        p.rest = sizeof(int64_t);
        break;
      case Query::check:
      case Query::wait:
      case Query::multi_get:
        p.list = 1;
        break;
      case Query::multi_set:
        p.list = 2;
        break;
      default:
        break;
    }
  }
  const auto length = [&] {
    uint64_t n = 0;
    std::memcpy(&n, bytes.data() + p.at, sizeof(n));
    return n;
  };
  if (p.list > 0) {
    if (bytes.size() - p.at < sizeof(uint64_t)) return Outcome::incomplete;
    if (length() > kMostTexts) return Outcome::wrong;
    p.texts = length() * p.list;
    p.list = 0;
    p.at += sizeof(uint64_t);
  }
  for (; p.texts > 0; --p.texts) {
    if (bytes.size() - p.at < sizeof(uint64_t)) return Outcome::incomplete;
    const uint64_t n = length();
    if (n > kMostText) return Outcome::wrong;
    if (bytes.size() - p.at - sizeof(uint64_t) < n) return Outcome::incomplete;
    p.at += sizeof(uint64_t) + n;
  }
  return bytes.size() - p.at < p.rest ? Outcome::incomplete : Outcome::done;
}

StoreSession::Outcome StoreSession::answer(Reader& reader) {
  const auto query = Query(reader.number<uint8_t>());
  const auto rest = [&] { return reader.is_wrong() ? Outcome::wrong : Outcome::incomplete; };
  const auto kept = [&] { return state_.is_full() ? Outcome::wrong : Outcome::done; };
  switch (query) {
    case Query::validate: {
      const auto magic = reader.number<uint32_t>();
      if (!reader.is_whole()) return rest();
      if (magic != kStoreMagic) return Outcome::wrong;
      validated_ = true;
      return Outcome::done;
    }
    case Query::ping: {
      const auto nonce = reader.number<uint32_t>();
      if (!reader.is_whole()) return rest();
      out.append(reinterpret_cast<const char*>(&nonce), sizeof(nonce));
      return Outcome::done;
    }
    case Query::set:
    case Query::append: {
      const std::string key = reader.key();
      const std::string_view value = reader.text();
      if (!reader.is_whole()) return rest();
      if (query == Query::set) {
        state_.keys.set(key, value);
      } else {
        const std::string* old = state_.keys.find(key);
        if (old && old->size() + value.size() > kMostText) return Outcome::wrong;
        state_.keys.append(key, value);
      }
      state_.announce(key);
      return kept();
    }
    case Query::multi_set: {
      std::vector<std::pair<std::string, std::string_view>> pairs;
      for (uint64_t n = reader.count(); n > 0 && reader.is_whole(); --n) {
        std::string key = reader.key();
        pairs.emplace_back(std::move(key), reader.text());
      }
      if (!reader.is_whole()) return rest();
      for (const auto& [key, value] : pairs) {
        state_.keys.set(key, value);
        state_.announce(key);
        if (state_.is_full()) return Outcome::wrong;
      }
      return Outcome::done;
    }
    case Query::compare_set: {
      const std::string key = reader.key();
      const std::string_view expected = reader.text(), desired = reader.text();
      if (!reader.is_whole()) return rest();
      append_text(out, state_.keys.compare_set(key, expected, desired));
      if (state_.keys.find(key)) state_.announce(key);
      return kept();
    }
    case Query::get: {
      const std::string key = reader.key();
      if (!reader.is_whole()) return rest();
      // A client has waited for the key. Only if somebody deleted it since, there is no answer.
      const std::string* value = state_.keys.find(key);
      if (!value) return Outcome::wrong;
      append_text(out, *value);
      return Outcome::done;
    }
    case Query::multi_get: {
      const std::vector<std::string> keys = reader.keys();
      if (!reader.is_whole()) return rest();
      for (const std::string& key : keys) {
        const std::string* value = state_.keys.find(key);
        if (!value || out.size() > kMostRequest) return Outcome::wrong;
        append_text(out, *value);
      }
      return Outcome::done;
    }
    case Query::add: {
      const std::string key = reader.key();
      const auto amount = reader.number<int64_t>();
      if (!reader.is_whole()) return rest();
      try {
        append_number(out, uint64_t(state_.keys.add(key, amount)));
      } catch (const Error&) {
        return Outcome::wrong;
      }
      state_.announce(key);
      return kept();
    }
    case Query::check:
    case Query::wait: {
      const std::vector<std::string> keys = reader.keys();
      if (!reader.is_whole()) return rest();
      size_t there = 0;
      for (const std::string& key : keys) {
        if (state_.has(key))
          ++there;
        else if (query == Query::wait)
          state_.await(key, this);
      }
      if (query == Query::check)
        out.push_back(there == keys.size() ? kReady : kNotReady);
      else if (missing_ == 0)
        out.push_back(kStopWaiting);
      return Outcome::done;
    }
    case Query::cancel_wait:
      state_.forget(this);
      out.push_back(kCancelled);
      return Outcome::done;
    case Query::num_keys:
      append_number(out, state_.keys.size());
      return Outcome::done;
    case Query::delete_key: {
      const std::string key = reader.key();
      if (!reader.is_whole()) return rest();
      append_number(out, state_.keys.erase(key));
      return Outcome::done;
    }
    case Query::queue_push: {
      const std::string key = reader.key();
      const std::string_view value = reader.text();
      if (!reader.is_whole()) return rest();
      state_.queues[key].emplace_back(value);
      state_.queued += key.size() + value.size() + kQueueBytes;
      state_.announce(key);
      return kept();
    }
    case Query::queue_pop: {
      const std::string key = reader.key();
      if (!reader.is_whole()) return rest();
      const auto queue = state_.queues.find(key);
      append_number(out, queue == state_.queues.end() ? 0 : 1);
      if (queue == state_.queues.end()) return Outcome::done;
      append_text(out, queue->second.front());
      state_.queued -= key.size() + queue->second.front().size() + kQueueBytes;
      queue->second.pop_front();
      if (queue->second.empty()) state_.queues.erase(queue);
      return Outcome::done;
    }
    case Query::queue_length: {
      const std::string key = reader.key();
      if (!reader.is_whole()) return rest();
      const auto queue = state_.queues.find(key);
      append_number(out, queue == state_.queues.end() ? 0 : queue->second.size());
      return Outcome::done;
    }
    case Query::list_keys:
      append_number(out, state_.keys.size());
      for (const auto& [key, value] : state_.keys.values()) {
        if (out.size() > kMostRequest) return Outcome::wrong;
        append_text(out, key);
      }
      return Outcome::done;
  }
  return Outcome::wrong;
}

}  // namespace arete::distributed
