// Which implementation of an operation runs.
#pragma once

namespace remcaps {

/// kFused: the project's own kernel, if there is one for the operation, its shapes, types and
/// device; otherwise the plain tensor code. kReference: always the plain tensor code.
enum class KernelPath { kFused, kReference };

}  // namespace remcaps
