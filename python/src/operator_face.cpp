#include "operator_face.h"

#include <memory>

#include "arete/base/warn.h"
#include "convert.h"

namespace arete::python {

using ops::Arg;
using ops::OpRecord;
using ops::SchemaArg;

Overload make_face(const OpRecord& record, const std::string& signature) {
  // The signature is parsed as the schema of a record that nobody knows; it is remembered by its
  // address.
  static std::vector<std::unique_ptr<OpRecord>> shown;
  shown.push_back(std::make_unique<OpRecord>());
  OpRecord& face_record = *shown.back();
  face_record.name = record.name;
  face_record.schema = signature + " -> Tensor";
  Overload o = make_overload(face_record, {}, record.name);
  o.record = &record;
  o.numbers = false;

  auto face = std::make_shared<Face>();
  const std::vector<SchemaArg>& given = ops::schema_of(face_record).args;
  const std::vector<SchemaArg>& own = ops::schema_of(record).args;
  std::vector<bool> used(given.size());
  const auto place_of = [&](std::string_view name) {
    for (size_t i = 0; i < given.size(); ++i)
      if (given[i].name == name) {
        used[i] = true;
        return int(i);
      }
    return -1;
  };
  const Overload plain = make_overload(record, {}, record.name);
  for (size_t i = 0; i < own.size(); ++i) {
    // The first tensor may be called differently.
    const bool first = i == 0 && given[0].type == "Tensor";
    face->places.push_back(first ? 0 : place_of(own[i].name));
    if (first) used[0] = true;
    face->defaults.push_back(plain.defaults[i]);
    if (own[i].name == "reduction") face->reduction = int(i);
    if (own[i].name == "training") face->training = int(i);
  }
  if (record.has_in_place) face->inplace = place_of("inplace");
  if ((face->with_indices = ops::find_record(record.name + "_with_indices")))
    face->return_indices = place_of("return_indices");
  else if (record.name.ends_with("_with_indices"))
    place_of("return_indices");  // it does, whatever is said
  if (face->reduction >= 0) {
    face->size_average = place_of("size_average");
    face->reduce = place_of("reduce");
  }
  face->out = place_of("out");
  for (size_t i = 0; i < given.size(); ++i)
    if (!used[i])
      throw ValueError("Operator",
                       "the record " + record.full_name() + " has no argument " + given[i].name);
  const bool plain_names =
      given.empty() || given[0].name == "input" || given[0].name == own[0].name;
  if (plain_names && face->inplace < 0 && face->return_indices < 0 && face->size_average < 0 &&
      face->out < 0 && !record.name.ends_with("_with_indices"))
    return make_overload(record, signature, record.name);  // nothing besides: a call like any other
  o.face = std::move(face);
  return o;
}

void bind_face(const Overload& o, const Arg* bound, FaceCall& call) {
  const Face& f = *o.face;
  call.record = o.record;
  call.count = f.places.size();
  for (size_t i = 0; i < call.count; ++i)
    call.args[i] = f.places[i] >= 0 ? bound[f.places[i]] : f.defaults[i].borrow();
  if (f.return_indices >= 0 && bound[f.return_indices].boolean()) call.record = f.with_indices;
  if (f.out >= 0 && !bound[f.out].is_none()) call.out = bound[f.out].tensor();
  if (f.size_average >= 0) {
    const Arg &average = bound[f.size_average], &reduce = bound[f.reduce];
    if (!average.is_none() || !reduce.is_none()) {
      const char* const word = !reduce.is_none() && !reduce.boolean()     ? "none"
                               : !average.is_none() && !average.boolean() ? "sum"
                                                                          : "mean";
      warn(std::string("size_average and reduce args will be deprecated, please use reduction='") +
           word + "' instead.");
      call.args[f.reduction] = Arg(word);
    }
  }
  call.in_place = f.inplace >= 0 && bound[f.inplace].boolean();
  // Dropout out of training; a leaf that wants gradients may be given, too.
  call.idle = call.in_place && f.training >= 0 && call.record->has_in_place &&
              !call.args[f.training].boolean() &&
              call.record->name.find("dropout") != std::string::npos;
}

}  // namespace arete::python
