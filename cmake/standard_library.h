// What nearly every source file of Arete includes, precompiled once (AreteModule.cmake). Nothing of
// our own: a change of a header must not rebuild what does not include it. Files include what they
// use all the same: builds without precompiled headers (ARETE_PRECOMPILE=OFF, as in the sanitizer
// presets) hold them to it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
