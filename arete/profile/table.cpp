#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>

#include "arete/base/error.h"
#include "arete/profile/text_table_internal.h"
#include "arete/profile/trace.h"

namespace arete::profile {

void TextTable::add_column(std::string title, int width, bool left) {
  const size_t w = std::max(size_t(width), title.size());
  columns_.push_back({std::move(title), w, left});
}

void TextTable::add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string TextTable::render(const std::string& header, const std::string& footer) const {
  std::string rule, out;
  for (const Column& c : columns_) rule += std::string(c.width, '-') + "  ";
  rule += '\n';
  const auto line = [&](const auto& text_of) {
    std::string l;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const Column& c = columns_[i];
      std::string text = text_of(i);
      if (text.size() > c.width) text = text.substr(0, c.width - 3) + "...";
      const std::string space(c.width - text.size(), ' ');
      l += (c.left ? text + space : space + text) + "  ";
    }
    return l + '\n';
  };
  if (!header.empty()) out += std::string(rule.size() - 1, '=') + '\n' + header + '\n';
  out += rule + line([&](size_t i) { return columns_[i].title; }) + rule;
  for (const auto& row : rows_) out += line([&](size_t i) { return row.at(i); });
  return out + rule + footer;
}

int width_of(const std::vector<std::string>& texts, int least, int limit) {
  int width = least;
  for (const std::string& t : texts) width = std::max(width, int(t.size()));
  return limit > 0 ? std::min(width, limit) : width;
}

namespace {

std::string percent(double part, double whole) {
  if (whole == 0) return "NaN";
  char text[32];
  std::snprintf(text, sizeof text, "%.2f%%", part / whole * 100);
  return text;
}

std::string shapes_text(const std::vector<std::vector<int64_t>>& shapes) {
  std::string text = "[";
  for (size_t i = 0; i < shapes.size(); ++i) {
    text += i ? ", [" : "[";
    for (size_t k = 0; k < shapes[i].size(); ++k)
      text += (k ? ", " : "") + std::to_string(shapes[i][k]);
    text += ']';
  }
  return text + ']';
}

using Figure = std::function<double(const Average&)>;

Figure figure_of(std::string name) {
  const size_t at = name.find("cuda");
  if (at != std::string::npos) name.replace(at, 4, "device");
  if (name == "cpu_time_total") return [](const Average& a) { return a.cpu_time_total; };
  if (name == "self_cpu_time_total") return [](const Average& a) { return a.self_cpu_time_total; };
  if (name == "cpu_time") return [](const Average& a) { return a.cpu_time(); };
  if (name == "device_time_total") return [](const Average& a) { return a.device_time_total; };
  if (name == "self_device_time_total")
    return [](const Average& a) { return a.self_device_time_total; };
  if (name == "device_time") return [](const Average& a) { return a.device_time(); };
  if (name == "cpu_memory_usage")
    return [](const Average& a) { return double(a.cpu_memory_usage); };
  if (name == "self_cpu_memory_usage")
    return [](const Average& a) { return double(a.self_cpu_memory_usage); };
  if (name == "device_memory_usage")
    return [](const Average& a) { return double(a.device_memory_usage); };
  if (name == "self_device_memory_usage")
    return [](const Average& a) { return double(a.self_device_memory_usage); };
  if (name == "count") return [](const Average& a) { return double(a.count); };
  if (name == "flops") return [](const Average& a) { return a.flops; };
  if (name == "bytes") return [](const Average& a) { return double(a.bytes); };
  throw ValueError("table", "unknown figure to sort by")
      .argument("sort_by")
      .got(name)
      .expected(
          "cpu_time_total, self_cpu_time_total, cuda_time_total, self_cuda_time_total, cpu_time, "
          "cuda_time, cpu_memory_usage, self_cpu_memory_usage, cuda_memory_usage, "
          "self_cuda_memory_usage, count, flops or bytes");
}

// A power of 1000 in which the largest of the numbers has at most six digits, and its name.
std::pair<double, std::string> scale_of_flops(const std::vector<Average>& averages) {
  static constexpr const char* kNames[] = {"FLOPs",  "KFLOPs", "MFLOPs",
                                           "GFLOPs", "TFLOPs", "PFLOPs"};
  double most = 0;
  for (const Average& a : averages) most = std::max(most, a.flops);
  const int power = most > 0 ? std::clamp(int(std::log10(most)) / 3 - 1, 0, 5) : 0;
  return {std::pow(1000.0, power), kNames[power]};
}

}  // namespace

std::string Trace::table(const std::vector<Average>& given, const TableOptions& o) const {
  std::vector<Average> averages = given;
  if (o.top_level_events_only) {
    std::erase_if(averages, [](const Average& a) { return !a.on_device && !a.outermost; });
    for (Average& a : averages)
      if (a.outermost) a = Average(*a.outermost);
  }
  if (!o.sort_by.empty()) {
    const Figure figure = figure_of(o.sort_by);
    std::stable_sort(averages.begin(), averages.end(),
                     [&](const Average& a, const Average& b) { return figure(a) > figure(b); });
  }
  double self_cpu = 0, self_device = 0;
  bool shapes = false, stacks = false, memory = with_memory, device_memory = false;
  for (const Average& a : given) {
    self_cpu += a.self_cpu_time_total;
    self_device += a.on_device ? 0 : a.self_device_time_total;
    shapes = shapes || !a.shapes.empty();
    stacks = stacks || !a.stack.empty();
    device_memory = device_memory || a.device_memory_usage || a.self_device_memory_usage;
  }
  // Kernels that no operator stands for: those of replayed graphs, for example.
  double all_kernels = 0;
  for (const prim::DeviceActivity& a : activities)
    all_kernels += double(a.end_ns - a.begin_ns) / 1e3;
  self_device = std::max(self_device, all_kernels);
  const bool device = self_device > 0;
  const auto [flops_scale, flops_name] = scale_of_flops(averages);
  if (o.row_limit >= 0 && averages.size() > size_t(o.row_limit))
    averages.resize(size_t(o.row_limit));

  std::vector<std::string> names, shape_texts, stack_texts, all_frames;
  for (const Average& a : averages) {
    names.push_back(a.key);
    shape_texts.push_back(shapes_text(a.shapes));
    stack_texts.push_back(a.stack.empty() ? "" : a.stack.front());
    all_frames.insert(all_frames.end(), a.stack.begin(), a.stack.end());
  }
  TextTable t;
  t.add_column("Name", width_of(names, 12, o.max_name_column_width));
  for (const char* c : {"Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"})
    t.add_column(c);
  if (device)
    for (const char* c : {"Self CUDA", "Self CUDA %", "CUDA total", "CUDA time avg"})
      t.add_column(c);
  if (memory)
    for (const char* c : {"CPU Mem", "Self CPU Mem"}) t.add_column(c);
  if (memory && device_memory)
    for (const char* c : {"CUDA Mem", "Self CUDA Mem"}) t.add_column(c);
  t.add_column("# of Calls");
  if (shapes) t.add_column("Input Shapes", width_of(shape_texts, 12, o.max_shapes_column_width));
  if (stacks)
    t.add_column("Source Location", width_of(all_frames, 12, o.max_src_column_width), true);
  if (with_flops) t.add_column("Total " + flops_name);
  for (size_t i = 0; i < averages.size(); ++i) {
    const Average& a = averages[i];
    std::vector<std::string> row{a.key,
                                 percent(a.self_cpu_time_total, self_cpu),
                                 format_time(a.self_cpu_time_total),
                                 percent(a.cpu_time_total, self_cpu),
                                 format_time(a.cpu_time_total),
                                 format_time(a.cpu_time())};
    if (device)
      row.insert(row.end(), {format_time(a.self_device_time_total),
                             percent(a.self_device_time_total, self_device),
                             format_time(a.device_time_total), format_time(a.device_time())});
    if (memory)
      row.insert(row.end(),
                 {format_memory(a.cpu_memory_usage), format_memory(a.self_cpu_memory_usage)});
    if (memory && device_memory)
      row.insert(row.end(),
                 {format_memory(a.device_memory_usage), format_memory(a.self_device_memory_usage)});
    row.push_back(std::to_string(a.count));
    if (shapes) row.push_back(shape_texts[i]);
    if (stacks) row.push_back(stack_texts[i]);
    if (with_flops) {
      char text[48] = "--";
      if (a.flops > 0) std::snprintf(text, sizeof text, "%.3f", a.flops / flops_scale);
      row.push_back(text);
    }
    t.add_row(std::move(row));
    // Further frames stand below the first.
    for (size_t k = 1; stacks && k < a.stack.size(); ++k) {
      std::vector<std::string> more(1 + 5 + (device ? 4 : 0) + (memory ? 2 : 0) +
                                    (memory && device_memory ? 2 : 0) + 1 + (shapes ? 1 : 0));
      more.push_back(a.stack[k]);
      if (with_flops) more.emplace_back();
      t.add_row(std::move(more));
    }
  }
  std::string footer = "Self CPU time total: " + format_time(self_cpu) + '\n';
  if (device) footer += "Self CUDA time total: " + format_time(self_device) + '\n';
  if (device && device_times == DeviceTimes::events)
    footer += "CUDA times are those between CUDA events around each operator, not of kernels: " +
              device_times_problem + '\n';
  return t.render(o.header, footer);
}

std::string Trace::synchronization_table() const {
  const std::vector<Synchronization> all = synchronizations();
  std::vector<std::string> operators, sources;
  double waited = 0;
  size_t waits = 0, bytes = 0;
  for (const Synchronization& s : all) {
    operators.push_back(s.operator_name);
    sources.push_back(s.source);
    waits += s.blocking;
    waited += s.blocking ? s.host_time : 0;
    bytes += s.bytes;
  }
  TextTable t;
  t.add_column("What", 18);
  t.add_column("Kind", 10);
  t.add_column("Device", 8);
  t.add_column("Bytes", 10);
  t.add_column("Waits", 6);
  t.add_column("Host time", 12);
  t.add_column("Operator", width_of(operators, 12, 40));
  t.add_column("Source", width_of(sources, 12, 100), true);
  for (const Synchronization& s : all)
    t.add_row({s.what, s.kind, s.device, s.bytes ? format_memory(int64_t(s.bytes)) : "--",
               s.blocking ? "yes" : "no", format_time(s.host_time), s.operator_name, s.source});
  return t.render("", "The host waited " + std::to_string(waits) + " times, " +
                          format_time(waited) + " in all; " + format_memory(int64_t(bytes)) +
                          " were copied\n");
}

}  // namespace arete::profile
