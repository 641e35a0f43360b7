# Each layer's past is a list of two, extended after every pass but the last one.
@torch.no_grad()
def generate_cached(model, ids, n):
    length = ids.shape[1]
    text = ids.new_empty(ids.shape[0], length + n)
    text[:, :length] = ids
    if n == 0:
        return text
    logits, past = model(ids, torch.arange(length), None)
    past = [list(layer) for layer in past]
    text[:, length] = logits[:, -1].max(-1).indices
    for p in range(length, length + n - 1):
        logits, new = model(text[:, p : p + 1], torch.tensor([p]), past)
        for layer, (k, v) in zip(past, new, strict=True):
            layer[0], layer[1] = torch.cat((layer[0], k), -2), torch.cat((layer[1], v), -2)
        text[:, p + 1] = torch.argmax(logits[:, -1], dim=-1)
    return text
