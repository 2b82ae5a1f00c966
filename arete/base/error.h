// Typed errors. `ARETE_CHECK` reports a mistake of the user, `ARETE_BUG` one of ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace arete {

/// What kind of mistake was made; Python maps each to the exception its users know.
enum class ErrorKind : uint8_t {
  value,            ///< an argument has a wrong value or shape
  type,             ///< an argument has a wrong type or dtype
  index,            ///< an index or dimension is out of range
  device,           ///< tensors on different devices, or a device that is not there
  autograd,         ///< a rule of differentiation is broken (in-place on a leaf, freed graph, ...)
  io,               ///< a file or folder could not be read or written, or holds something else
  not_implemented,  ///< a combination that Arete does not support
  out_of_memory,    ///< an allocation failed
  bug,              ///< an internal inconsistency: please report it
};

/// The base of every exception thrown by Arete. The text is one paragraph: what happened, then
/// argument, expected, got and the hint, as far as they are known. Fields are kept for tools.
class Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string_view op, std::string_view message);
  // Not inline: every check would carry a copy of them.
  Error(const Error&);
  Error(Error&&) noexcept;
  Error& operator=(const Error&);
  Error& operator=(Error&&) noexcept;
  ~Error() override;

  ErrorKind kind() const noexcept { return kind_; }
  const std::string& op() const noexcept { return op_; }
  const std::string& message() const noexcept { return message_; }
  const std::string& argument() const noexcept { return argument_; }
  const std::string& expected() const noexcept { return expected_; }
  const std::string& got() const noexcept { return got_; }
  const std::string& hint() const noexcept { return hint_; }
  const char* what() const noexcept override { return what_.c_str(); }

 protected:
  /// Assigns one of the texts and renews the whole.
  void set(std::string& field, std::string_view text);
  void rebuild();
  ErrorKind kind_;
  std::string op_, message_, argument_, expected_, got_, hint_, what_;
};

/// An error of one kind, built by chaining: `ValueError("mm", "shapes do not fit").got("...")`.
/// `op` may be empty for errors outside operators.
template <ErrorKind K>
class ErrorOf : public Error {
 public:
  ErrorOf(std::string_view op, std::string_view message) : Error(K, op, message) {}
  using Error::argument, Error::expected, Error::got, Error::hint;
  ErrorOf& argument(std::string_view s) { return set(argument_, s); }
  ErrorOf& expected(std::string_view s) { return set(expected_, s); }
  ErrorOf& got(std::string_view s) { return set(got_, s); }
  ErrorOf& hint(std::string_view s) { return set(hint_, s); }

 private:
  ErrorOf& set(std::string& field, std::string_view s) {
    Error::set(field, s);
    return *this;
  }
};

using ValueError = ErrorOf<ErrorKind::value>;
using TypeError = ErrorOf<ErrorKind::type>;
using IndexError = ErrorOf<ErrorKind::index>;
using DeviceError = ErrorOf<ErrorKind::device>;
using AutogradError = ErrorOf<ErrorKind::autograd>;
using IoError = ErrorOf<ErrorKind::io>;
using NotImplementedError = ErrorOf<ErrorKind::not_implemented>;
using OutOfMemoryError = ErrorOf<ErrorKind::out_of_memory>;
using BugError = ErrorOf<ErrorKind::bug>;

namespace detail {
[[noreturn]] void throw_bug(const char* file, int line, const char* condition, const char* text);

template <size_t... K>
void throw_as_it_is(const Error& e, std::string_view message, std::string_view hint,
                    std::index_sequence<K...>) {
  ((e.kind() == ErrorKind(K) ? throw ErrorOf<ErrorKind(K)>(e.op(), message)
                                   .argument(e.argument())
                                   .expected(e.expected())
                                   .got(e.got())
                                   .hint(hint)
                             : void()),
   ...);
}
}  // namespace detail

/// Throws `e` again, as the kind of error that it is, with another message and hint.
[[noreturn]] inline void throw_again(const Error& e, std::string_view message,
                                     std::string_view hint) {
  detail::throw_as_it_is(e, message, hint, std::make_index_sequence<size_t(ErrorKind::bug) + 1>());
  __builtin_unreachable();
}

/// Throws `error` (an expression such as `ValueError("op", "text").hint("...")`, evaluated only
/// then) unless `condition` holds.
#define ARETE_CHECK(condition, error) \
  do {                                \
    if (!(condition)) [[unlikely]]    \
      throw error;                    \
  } while (false)

/// Throws BugError with the place in the source unless `condition` holds.
#define ARETE_ASSERT(condition)                                       \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::arete::detail::throw_bug(__FILE__, __LINE__, #condition, ""); \
  } while (false)

/// Throws BugError: control should never come here.
#define ARETE_BUG(text) ::arete::detail::throw_bug(__FILE__, __LINE__, nullptr, text)

}  // namespace arete
