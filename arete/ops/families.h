// Keeps the files of records in static links (see Note [Families] in record.h).
#pragma once

namespace arete::ops {
/// References every family's file. Called before look-ups by name.
void link_families();
}  // namespace arete::ops
