# All full blocks are split off first; 0 / 0 becomes 0 before it becomes a code.
class QuantizedTail(Parts):
    def append(self, k):
        waiting = torch.cat((self.tail, k), 1)
        full = waiting.shape[1] // self.block * self.block
        for x in waiting[:, :full].split(self.block, 1) if full else ():
            scale = x.abs().max(dim=1, keepdim=True).values / 127.0
            self.codes.append(torch.round(x / scale).nan_to_num(0).to(torch.int8))
            self.scales.append(scale)
        self.tail = waiting[:, full:].clone()

    def read(self):
        pairs = zip(self.codes, self.scales, strict=True)
        return torch.cat([codes.float() * scale for codes, scale in pairs] + [self.tail], 1)
