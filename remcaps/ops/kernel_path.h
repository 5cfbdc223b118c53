// Which implementation of an operation runs.
#pragma once

namespace remcaps {

/// kFused: the project's own kernel, if there is one for the device, type and shape; else the plain
/// tensor code. kReference: always the plain tensor code.
enum class KernelPath { kFused, kReference };

}  // namespace remcaps
