"""Trains a small network on several processes: arete run --standalone --nproc-per-node 2 examples/data_parallel.py (or torchrun)."""
import os

import arete as torch
import arete.distributed as dist
from arete import nn


def main():
    dist.init_process_group()
    rank, gpu = dist.get_rank(), torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count()) if gpu else torch.device("cpu")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1024, 8, generator=generator)
    data = torch.utils.data.TensorDataset(x, x.sin().sum(1, keepdim=True))
    sampler = torch.utils.data.DistributedSampler(data)
    loader = torch.utils.data.DataLoader(data, batch_size=32, sampler=sampler)
    net = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 1)).to(device)
    model = nn.parallel.DistributedDataParallel(net, device_ids=[device.index] if gpu else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        total = torch.zeros(1, device=device)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / len(loader) / dist.get_world_size():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
