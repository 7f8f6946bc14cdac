// Rules for a live program: by the marks of its steps, and by what its processes did.
#pragma once

#include "ridge/doctor/live/live.h"

namespace ridge::doctor {

/// R29, R01 and, where its workers have no processor left, R02, of steps that were not profiled;
/// `marked` is the analysis of `spans`.
void judge_marks(const Trace& spans,
                 const Analysis& marked,
                 const LiveFacts& facts,
                 RuleOutput& output);

/// R30 of what was seen from outside, in milliseconds of `analysis`' step; nothing where nothing
/// was sampled.
void judge_processors(const LiveFacts& facts, const Analysis& analysis, RuleOutput& output);

/// Processors' worth of time that the program may use; 0: not known.
double processors_of(const LiveFacts& facts);

}  // namespace ridge::doctor
