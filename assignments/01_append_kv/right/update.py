# The dictionary is updated at once, with the negative number of the axis.
def append_kv(cache, k, v):
    new = {"k": k, "v": v}
    cache.update({name: torch.cat((rows, new[name].to(rows)), -2) for name, rows in cache.items()})
    return tuple(cache.values())
