// What tests ask of errors.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "arete/base/error.h"

namespace arete::test {

/// The text of the Error that `f` throws; the test fails if there is none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

/// Runs `f`, which must throw an Error of that kind whose text holds all `parts`.
template <class F>
void expect_error(ErrorKind kind, std::initializer_list<std::string_view> parts, F&& f) {
  const std::string text = error_of([&] {
    try {
      f();
    } catch (const Error& e) {
      EXPECT_EQ(int(e.kind()), int(kind)) << e.what();
      throw;
    }
  });
  for (const std::string_view part : parts)
    EXPECT_TRUE(has(text, part)) << part << "\nin: " << text;
}

}  // namespace arete::test

/// The statement throws an Error whose text holds `text`.
#define EXPECT_ERROR(statement, text)                                                          \
  do {                                                                                         \
    const std::string said = ::arete::test::error_of([&] { statement; });                      \
    EXPECT_TRUE(::arete::test::has(said, text)) << "expected: " << (text) << "\nin: " << said; \
  } while (false)
