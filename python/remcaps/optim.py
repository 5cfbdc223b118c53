"""Adam as one pass over the parameters."""

import torch

from remcaps import _remcaps


class Adam(torch.optim.Adam):
    """torch.optim.Adam with the kernel of the program: the same arguments, state and results, faster.

    The kernel updates contiguous float32 parameters by the plain rule. With weight decay, amsgrad
    or another option, and for other parameters, PyTorch's code runs.
    """

    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        trained = [[p for p in group["params"] if p.grad is not None]
                   for group in self.param_groups]
        if not all(map(_is_plain, self.param_groups)) or not all(map(_has_kernel, sum(trained, []))):
            super().step()
            return loss
        for group, parameters in zip(self.param_groups, trained):
            together = {}  # parameters on one device that have had as many steps
            for p in parameters:
                state = self.state[p]
                if not state:
                    state.update(step=torch.tensor(0.0), exp_avg=torch.zeros_like(p),
                                 exp_avg_sq=torch.zeros_like(p))
                state["step"] += 1
                together.setdefault((p.device, int(state["step"])), []).append(p)
            for (_, step), some in together.items():
                _remcaps.adam_step(
                    some, [p.grad for p in some], [self.state[p]["exp_avg"] for p in some],
                    [self.state[p]["exp_avg_sq"] for p in some], float(group["lr"]),
                    *map(float, group["betas"]), group["eps"], step)
        return loss

    def zero_grad(self, set_to_none=True):
        """Forgets the gradients, as in PyTorch 2."""
        super().zero_grad(set_to_none)


def _is_plain(group):
    options = ("amsgrad", "maximize", "capturable", "differentiable", "fused",
               "decoupled_weight_decay")
    return group["weight_decay"] == 0 and not any(group.get(name) for name in options)


def _has_kernel(parameter):
    return (parameter.dtype == torch.float32 and parameter.is_contiguous() and
            parameter.layout == parameter.grad.layout == torch.strided)
