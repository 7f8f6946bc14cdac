// The library's face: a trained model, loaded and run.
//
//   ridge::Session session(ridge::load_model("runs/digits"));
//   const ridge::NamedTensors outputs = session.run({{"x", images}});
//
// Errors of input and environment are ridge::UserError, with one thing to do about them.
#pragma once

#include "ridge/base/error.h"
#include "ridge/infer/session.h"
