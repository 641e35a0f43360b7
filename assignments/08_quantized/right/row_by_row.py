# One token at a time; only where the scale is not 0 is anything divided.
class QuantizedTail(Parts):
    def append(self, k):
        for i in range(k.shape[1]):
            self.tail = torch.cat([self.tail, k[:, i : i + 1]], 1)
            if self.tail.shape[1] == self.block:
                scale = self.tail.abs().amax(dim=1, keepdim=True) / 127
                codes, some = torch.zeros_like(self.tail), (scale > 0).expand_as(self.tail)
                codes[some] = (self.tail / scale)[some].round()
                self.codes.append(codes.to(torch.int8))
                self.scales.append(scale)
                self.tail = self.tail[:, :0].clone()

    def read(self):
        if not self.codes:
            return self.tail.clone()
        blocks = torch.stack(self.codes).float() * torch.stack(self.scales)
        return torch.cat([blocks.permute(1, 0, 2, 3).flatten(1, 2), self.tail], 1)
