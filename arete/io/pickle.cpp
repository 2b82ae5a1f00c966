#include "arete/io/pickle.h"

#include <bit>
#include <utility>

#include "arete/base/error.h"

namespace arete::io {

namespace {

// The opcodes, by their names in Python's pickletools.
enum Code : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kBinFloat = 'G',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDict = '}',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
};

}  // namespace

void PickleMachine::fail(const std::string& what) const {
  throw IoError("load_torch", file_name_ + ": " + what);
}

std::span<const std::byte> PickleMachine::take(uint64_t n) {
  if (n > bytes_.size() - at_) fail("the pickle ends too early");
  const auto part = bytes_.subspan(at_, size_t(n));
  at_ += size_t(n);
  return part;
}

uint64_t PickleMachine::little(std::span<const std::byte> bytes) {
  uint64_t v = 0;
  for (size_t i = 0; i < bytes.size(); ++i) v |= uint64_t(bytes[i]) << (8 * i);
  return v;
}

std::string PickleMachine::line() {
  std::string s;
  for (;;) {
    const char c = char(take(1)[0]);
    if (c == '\n') return s;
    if (s.size() == 1000) fail("a name in the pickle is too long");
    s += c;
  }
}

std::string PickleMachine::text(uint64_t n) {
  const auto part = take(n);
  return {reinterpret_cast<const char*>(part.data()), part.size()};
}

size_t PickleMachine::top() const {
  if (stack_.empty() || values_[stack_.back()].kind == Kind::mark)
    fail("the pickle takes a value where there is none");
  return stack_.back();
}

size_t PickleMachine::pop() {
  const size_t v = top();
  stack_.pop_back();
  return v;
}

std::vector<size_t> PickleMachine::pop_to_mark() {
  size_t first = stack_.size();
  while (first > 0 && values_[stack_[first - 1]].kind != Kind::mark) --first;
  if (first == 0) fail("the pickle has no mark where it needs one");
  std::vector<size_t> items(stack_.begin() + ptrdiff_t(first), stack_.end());
  stack_.resize(first - 1);
  return items;
}

// Two's complement of any length; what no 64 bits hold becomes the nearest double.
void PickleMachine::push_long(std::span<const std::byte> bytes) {
  if (bytes.size() <= 8) {
    uint64_t v = little(bytes);
    if (!bytes.empty() && bytes.size() < 8 && (uint8_t(bytes.back()) & 0x80))
      v |= ~uint64_t{0} << (8 * bytes.size());
    return push(Kind::integer, int64_t(v));
  }
  double v = double(int8_t(bytes.back()));
  for (size_t i = bytes.size() - 1; i-- > 0;) v = v * 256 + double(uint8_t(bytes[i]));
  push(Kind::real);
  values_.back().real = v;
}

void PickleMachine::push_tuple(size_t n) {
  std::vector<size_t> items(n);
  for (size_t i = n; i-- > 0;) items[i] = pop();
  push(Kind::tuple);
  values_.back().items = std::move(items);
}

// Adds to the container of one of two kinds on the top of the stack.
void PickleMachine::append(const std::vector<size_t>& items, Kind a, Kind b, bool pairs) {
  Value& to = values_[top()];
  if ((to.kind != a && to.kind != b) || (pairs && items.size() % 2 != 0))
    fail("the pickle adds to what is no such container");
  to.items.insert(to.items.end(), items.begin(), items.end());
}

void PickleMachine::remember(uint64_t place) { memo_[place] = top(); }

void PickleMachine::step(uint8_t code) {
  switch (code) {
    case kProto:
      if (number(1) > 5) fail("the pickle has a protocol that is not known");
      return;
    case kFrame:
      take(8);
      return;
    case kMark:
      return push(Kind::mark);
    case kPop:
      if (stack_.empty()) fail("the pickle takes a value where there is none");
      stack_.pop_back();
      return;
    case kPopMark:
      pop_to_mark();
      return;
    case kDup:
      stack_.push_back(top());
      return;
    case kNone:
      return push(Kind::none);
    case kNewTrue:
    case kNewFalse:
      return push(Kind::boolean, code == kNewTrue);
    case kBinInt:
      return push(Kind::integer, int32_t(uint32_t(number(4))));
    case kBinInt1:
      return push(Kind::integer, int64_t(number(1)));
    case kBinInt2:
      return push(Kind::integer, int64_t(number(2)));
    case kLong1:
      return push_long(take(number(1)));
    case kLong4:
      return push_long(take(number(4)));
    case kBinFloat: {
      uint64_t bits = 0;
      for (const std::byte b : take(8)) bits = bits << 8 | uint64_t(b);
      push(Kind::real);
      values_.back().real = std::bit_cast<double>(bits);
      return;
    }
    case kBinUnicode:
      return push_text(Kind::text, text(number(4)));
    case kShortBinUnicode:
      return push_text(Kind::text, text(number(1)));
    case kBinUnicode8:
      return push_text(Kind::text, text(number(8)));
    case kBinString:  // of Python 2, which wrote names as such
      return push_text(Kind::text, text(number(4)));
    case kShortBinString:
      return push_text(Kind::text, text(number(1)));
    case kBinBytes:
      return push_text(Kind::bytes, text(number(4)));
    case kShortBinBytes:
      return push_text(Kind::bytes, text(number(1)));
    case kBinBytes8:
      return push_text(Kind::bytes, text(number(8)));
    case kEmptyTuple:
      return push(Kind::tuple);
    case kEmptyList:
      return push(Kind::list);
    case kEmptyDict:
      return push(Kind::dict);
    case kEmptySet:
      return push(Kind::set);
    case kTuple: {
      std::vector<size_t> items = pop_to_mark();
      push(Kind::tuple);
      values_.back().items = std::move(items);
      return;
    }
    case kFrozenSet: {
      std::vector<size_t> items = pop_to_mark();
      push(Kind::set);
      values_.back().items = std::move(items);
      return;
    }
    case kTuple1:
    case kTuple2:
    case kTuple3:
      return push_tuple(size_t(code - kTuple1) + 1);
    case kAppend: {
      const size_t item = pop();
      return append({item}, Kind::list, Kind::list, false);
    }
    case kAppends:
    case kAddItems:
      return append(pop_to_mark(), code == kAppends ? Kind::list : Kind::set,
                    code == kAppends ? Kind::list : Kind::set, false);
    case kSetItem: {
      const size_t value = pop(), key = pop();
      return append({key, value}, Kind::dict, Kind::dict, true);
    }
    case kSetItems:
      return append(pop_to_mark(), Kind::dict, Kind::dict, true);
    case kGlobal: {
      const std::string module = line();
      return push_text(Kind::global, module + "." + line());
    }
    case kStackGlobal: {
      const size_t name = pop(), module = pop();
      if (values_[name].kind != Kind::text || values_[module].kind != Kind::text ||
          values_[name].text.size() + values_[module].text.size() > 2000)
        fail("a name in the pickle is no text, or too long");
      return push_text(Kind::global, values_[module].text + "." + values_[name].text);
    }
    case kReduce:
    case kNewObj: {
      const size_t arguments = pop(), callee = pop();
      if (values_[callee].kind != Kind::global || values_[arguments].kind != Kind::tuple)
        fail("the pickle calls what is no function");
      if (values_[arguments].items.size() > 16)
        fail("the pickle calls '" + values_[callee].text + "' with too many arguments");
      // A copy: what is called may add values.
      const std::vector<size_t> items = values_[arguments].items;
      stack_.push_back(meaning_.call(callee, items));
      return;
    }
    case kBuild: {
      const size_t state = pop();
      return meaning_.build(top(), state);
    }
    case kBinPersId:
      stack_.push_back(meaning_.persistent(pop()));
      return;
    case kBinPut:
      return remember(number(1));
    case kLongBinPut:
      return remember(number(4));
    case kMemoize:
      return remember(memo_.size());
    case kBinGet:
    case kLongBinGet: {
      const auto it = memo_.find(number(code == kBinGet ? 1 : 4));
      if (it == memo_.end()) fail("the pickle takes back what it has not put away");
      stack_.push_back(it->second);
      return;
    }
    default:
      fail("the pickle has the instruction " + std::to_string(int(code)) +
           ", which files of tensors do not need");
  }
}

size_t PickleMachine::run(std::span<const std::byte> bytes, size_t* used) {
  bytes_ = bytes;
  at_ = 0;
  stack_.clear();
  memo_.clear();
  for (;;) {
    const uint8_t code = uint8_t(take(1)[0]);
    if (code == kStop) break;
    step(code);
  }
  if (stack_.size() != 1) fail("the pickle ends with more or less than one value");
  if (used) *used = at_;
  return top();
}

}  // namespace arete::io
