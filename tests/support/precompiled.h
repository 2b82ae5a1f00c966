// What nearly every test includes, precompiled once, as cmake/standard_library.h says.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>
#include <thread>

#include "cmake/standard_library.h"
